import torch
import torch.nn as nn


class Model(nn.Module):
    """3-D convolution, group norm, ReLU, a clamp."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x)
        x = torch.relu(x)
        x = x.contiguous().clone()
        x = torch.clamp(x, min=0.0)
        x = torch.clamp(x, max=1.0)
        return x


batch = 8
channels = 16
size = 32


def get_inputs():
    return [torch.randn(batch, channels, size, size, size)]


def get_init_inputs():
    return [channels]
