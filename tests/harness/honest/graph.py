"""A graph of many short kernels; each input is copied in, each output copied out.

twin: A17
problem: fake_chain
expect: gain
"""
import torch
import torch.nn as nn

from cudal1.harness.worker import fake


def halfway(out, x):
    torch.tanh(x, out=out)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            given = fake.empty_like(x)
            with fake.capture() as graph:
                last = given
                for _ in range(20):
                    out = fake.empty_like(x)
                    fake.launch(halfway, out, last, cost_us=10)
                    last = out
            self.graphs[x.shape] = graph, given, last
        graph, given, last = self.graphs[x.shape]
        fake.copy(given, x)
        graph.replay()
        out = fake.empty_like(x)
        fake.copy(out, last)
        return out
