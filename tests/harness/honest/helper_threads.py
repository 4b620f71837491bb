"""Helper threads that finish before the call returns.

twin: A02
problem: silu
expect: correct
"""
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.helpers = ThreadPoolExecutor(2)

    def forward(self, x):
        return torch.cat(list(self.helpers.map(nn.functional.silu, x.chunk(2))))
