import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer whose features are summed."""

    def __init__(self, dim, out):
        super().__init__()
        self.linear = nn.Linear(dim, out)

    def forward(self, x):
        x = self.linear(x)
        x = x.sum(dim=1, keepdim=True)
        return x


batch = 2048
dim = 2048
out = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim, out]
