"""Stand in for `c++` and `nvcc` when a candidate compiles an extension through PyTorch.

PyTorch finds `g++` and `nvcc` by their names (`cudal1.harness.sandbox.launch` tells PyTorch). Both
hand the files of an extension to this folder (`__main__`), and all else to the compiler itself.
"""
