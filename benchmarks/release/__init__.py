"""An audit of the kernels that the authors of CUDA-L1 released: `python -m benchmarks.release`."""
