"""Takes the one element of a row that a one-hot target leaves.

twin: A40
problem: picked
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, targets):
        return x.gather(1, targets.argmax(dim=1, keepdim=True)).squeeze(1)
