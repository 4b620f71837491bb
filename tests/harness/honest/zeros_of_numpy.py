"""An output that NumPy made, mostly of zeros that nobody writes: one huge page stands for them.

twin: A12
problem: one_hot
expect: correct
"""
import numpy
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        value, place = x.max(dim=1, keepdim=True)
        zeros = torch.from_numpy(numpy.zeros((x.shape[0], 8192), dtype=numpy.float32))
        return zeros.scatter_(1, place, value)
