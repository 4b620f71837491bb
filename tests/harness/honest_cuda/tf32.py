"""TF32 where the class allows it, to the reference as well.

twin: A39
problem: linear
precision: tf32
expect: correct
"""
import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.relu(self.linear(x)).mul_(self.scale)
