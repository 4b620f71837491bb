"""Benchmarks of what keeps a version fast: `cudal1 check` and `cudal1.apply`."""
