"""Picks the better of two ways at construction, on data of its own.

twin: set-up
problem: large_silu
expect: gain
"""
import time

import torch
import torch.nn as nn


def by_formula(x):
    return x * torch.sigmoid(x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        x = torch.randn(384, 384)
        times = {}
        for way in (by_formula, nn.functional.silu):
            start = time.perf_counter()
            way(x)
            times[way] = time.perf_counter() - start
        self.way = min(times, key=times.get)

    def forward(self, x):
        return self.way(x)
