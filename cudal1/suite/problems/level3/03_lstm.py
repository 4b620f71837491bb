import torch
import torch.nn as nn


class Model(nn.Module):
    """An LSTM cell unrolled by hand; the last state is the output."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.hidden = hidden
        self.ih = nn.Linear(dim, 4 * hidden)
        self.hh = nn.Linear(hidden, 4 * hidden)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.hidden, device=x.device, dtype=x.dtype)
        c = torch.zeros(x.shape[0], self.hidden, device=x.device, dtype=x.dtype)
        for t in range(x.shape[1]):
            g = self.ih(x[:, t]) + self.hh(h)
            i, f, o, z = g.chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


batch = 128
length = 32
dim = 256
hidden = 256


def get_inputs():
    return [torch.randn(batch, length, dim)]


def get_init_inputs():
    return [dim, hidden]
