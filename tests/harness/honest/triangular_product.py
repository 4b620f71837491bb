"""Never reads the half that a triangular matrix leaves at zero.

twin: A40
problem: triangular
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        half = a.shape[0] // 2
        out = torch.zeros_like(a)
        top, left = slice(None, half), slice(half, None)
        out[top, top] = torch.tril(a[top, top] @ b[top, top])
        out[left, left] = torch.tril(a[left, left] @ b[left, left])
        out[left, top] = a[left, top] @ b[top, top] + a[left, left] @ b[left, top]
        return out.relu_()
