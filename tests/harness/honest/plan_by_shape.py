"""A plan for each shape, made once; workspaces that never leave.

twin: A12
problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plans = {}

    def plan(self, rows, inner, columns):
        halves = [slice(0, rows // 2), slice(rows // 2, rows)]
        return halves, torch.empty(rows, columns)

    def forward(self, x, y):
        key = (*x.shape, y.shape[1])
        if key not in self.plans:
            self.plans[key] = self.plan(*key)
        halves, work = self.plans[key]
        for rows in halves:
            torch.mm(x[rows], y, out=work[rows])
        return work + 0
