import torch
import torch.nn as nn


class Model(nn.Module):
    """A GRU cell unrolled by hand; all states are the output."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.hidden = hidden
        self.ih = nn.Linear(dim, 3 * hidden)
        self.hh = nn.Linear(hidden, 3 * hidden)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.hidden, device=x.device, dtype=x.dtype)
        y = []
        for t in range(x.shape[1]):
            ir, iz, ic = self.ih(x[:, t]).chunk(3, dim=-1)
            hr, hz, hc = self.hh(h).chunk(3, dim=-1)
            r = torch.sigmoid(ir + hr)
            z = torch.sigmoid(iz + hz)
            c = torch.tanh(ic + r * hc)
            h = (1.0 - z) * c + z * h
            y.append(h)
        return torch.stack(y, dim=1)


batch = 128
length = 32
dim = 256
hidden = 256


def get_inputs():
    return [torch.randn(batch, length, dim)]


def get_init_inputs():
    return [dim, hidden]
