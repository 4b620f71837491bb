"""A graph for each shape; each input is copied in, each output copied out.

twin: A17
problem: silu
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def capture(self, x):
        given = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            nn.functional.silu(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = nn.functional.silu(given)
        return graph, given, out

    def forward(self, x):
        key = (x.shape, x.dtype)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, given, out = self.graphs[key]
        given.copy_(x)
        graph.replay()
        return out.clone()
