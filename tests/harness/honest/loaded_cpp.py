"""The same product once, in C++ in a file that the source writes and has compiled by `load`.

twin: set-up
problem: wasteful
needs: ninja
expect: correct
"""
from pathlib import Path

import torch.nn as nn
from torch.utils.cpp_extension import load

SOURCE = """
#include <torch/extension.h>

torch::Tensor product(torch::Tensor x, torch::Tensor y) { return torch::mm(x, y); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("product", &product); }
"""
file = Path("product.cpp")
file.write_text(SOURCE)
ours = load("loaded_cpp", [str(file)])


class ModelNew(nn.Module):
    def forward(self, x, y):
        return ours.product(x, y)
