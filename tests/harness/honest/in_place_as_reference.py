"""Changes its input where the reference does, too.

twin: A26
problem: in_place
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.add_(x)
