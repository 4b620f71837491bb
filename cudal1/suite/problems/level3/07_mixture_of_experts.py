import torch
import torch.nn as nn


class Model(nn.Module):
    """Every expert on every row in a Python loop, weighted by a softmax router."""

    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.w = nn.Parameter(torch.randn(experts, dim, dim))

    def forward(self, x):
        p = torch.softmax(self.router(x), dim=-1)
        y = torch.zeros_like(x)
        for i in range(self.w.shape[0]):
            y = y + p[:, i:i + 1] * (x @ self.w[i])
        return y


batch = 2048
dim = 512
experts = 8


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim, experts]
