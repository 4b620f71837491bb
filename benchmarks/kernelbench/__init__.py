"""Compare KernelBench's own evaluation with ours."""
