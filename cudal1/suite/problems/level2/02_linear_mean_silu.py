import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear, mean over features, x times sigmoid."""

    def __init__(self, dim, out):
        super().__init__()
        self.linear = nn.Linear(dim, out)

    def forward(self, x):
        x = self.linear(x)
        x = x.mean(dim=1, keepdim=True)
        x = x * torch.sigmoid(x)
        return x


batch = 2048
dim = 2048
out = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim, out]
