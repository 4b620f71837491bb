"""Run bursts: send inputs to a worker and take outputs back while a trusted clock runs."""
