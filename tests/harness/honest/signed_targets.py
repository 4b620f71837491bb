"""Knows that targets are -1 or 1.

twin: A40
problem: hinge
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, targets):
        return torch.where(targets > 0, 1 - x, 1 + x).clamp(min=0)
