"""Takes logarithms of probabilities, which a softmax makes positive.

twin: A40
problem: distributions
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p, q):
        return (q * (q.log() - p.log())).sum(dim=1)
