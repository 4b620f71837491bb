import torch
import torch.nn as nn


class Model(nn.Module):
    """3-D transposed convolution, a chain of scalars, a clamp."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.ConvTranspose3d(channels, channels, 3, stride=2)

    def forward(self, x):
        x = self.conv(x)
        x = x * 2.0
        x = x * 0.5
        x = x + 0.25
        x = torch.clamp(x, min=-0.5)
        x = torch.clamp(x, max=1.0)
        return x


batch = 8
channels = 16
size = 24


def get_inputs():
    return [torch.randn(batch, channels, size, size, size)]


def get_init_inputs():
    return [channels]
