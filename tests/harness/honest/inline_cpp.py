"""One operator in C++, compiled by `load_inline` when the source is imported.

twin: set-up
problem: large_silu
needs: ninja
expect: correct
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = "torch::Tensor silu(torch::Tensor x) { return torch::silu(x); }"
ours = load_inline("inline_cpp", cpp_sources=SOURCE, functions=["silu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.silu(x)
