"""What PyTorch calls instead of `c++` and `nvcc` when a candidate compiles an extension.

`g++` and `nvcc` are found by their names (`cudal1.harness.launch` tells PyTorch), and hand what is
part of an extension to this folder (`__main__`), everything else to the compiler itself.
"""
