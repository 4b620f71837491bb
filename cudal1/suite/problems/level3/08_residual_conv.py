import torch
import torch.nn as nn


class Model(nn.Module):
    """A residual block whose batch statistics are computed by hand."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        mean = y.mean(dim=(0, 2, 3), keepdim=True)
        var = ((y - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)
        y = (y - mean) / torch.sqrt(var + 1e-5)
        return torch.relu(x + y)


batch = 32
channels = 64
size = 64


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels]
