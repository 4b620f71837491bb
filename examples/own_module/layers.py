"""A layer as a program of one's own has it."""

import torch
from torch import nn


class GatedNorm(nn.Module):
    """Normalise by the root mean square, scale, and gate."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        scale = torch.sqrt(torch.pow(x, 2).mean(-1, keepdim=True) + self.eps)
        return x / scale * self.weight * (gate * torch.sigmoid(gate))
