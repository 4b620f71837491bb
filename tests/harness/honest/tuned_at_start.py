"""Picks the better of two ways at construction, on data of its own.

twin: set-up
problem: wasteful
expect: gain
"""
import time

import torch
import torch.nn as nn


def twice(x, y):
    return (x @ y + x @ y) / 2


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        x, y = torch.randn(192, 192), torch.randn(192, 192)
        times = {}
        for way in (twice, torch.matmul):
            way(x, y)
            start = time.perf_counter()
            way(x, y)
            times[way] = time.perf_counter() - start
        self.way = min(times, key=times.get)

    def forward(self, x, y):
        return self.way(x, y)
