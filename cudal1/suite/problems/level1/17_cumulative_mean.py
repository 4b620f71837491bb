import torch
import torch.nn as nn


class Model(nn.Module):
    """Mean of each prefix, through a triangular matrix of ones."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        k = torch.tril(torch.ones(x.shape[1], x.shape[1], device=x.device))
        x = x @ k.T
        x = x / torch.arange(1, x.shape[1] + 1, device=x.device)
        return x


batch = 1024
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
