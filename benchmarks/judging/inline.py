"""Make candidates that compile an inline extension, each a new text to every compiler.

Extensions are in CUDA for a GPU and in C++ for a CPU; they are elementwise, for shipped problems
that have one input.
"""

from __future__ import annotations

from cudal1.problem import DeviceClass, Problem

CPP = """import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = "torch::Tensor run(torch::Tensor x) {{ return {expression}; }} // {label}"
ours = load_inline("ours", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x)
"""
CUDA = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void each(const float* from, float* to, long count) {{  // {label}
    long place = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) {{
        float x = from[place];
        to[place] = {expression};
    }}
}}

torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    each<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
ours = load_inline(
    "ours", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE,
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x.contiguous())
'''
EXPRESSIONS = {
    "level1/08_silu": ("x * torch::sigmoid(x)", "x / (1.0f + expf(-x))"),
    "level1/12_clamp_chain": (
        "(x.clamp(-1.5, 1.5) * 2.0 + 3.0) * 0.5",
        "(fminf(fmaxf(x, -1.5f), 1.5f) * 2.0f + 3.0f) * 0.5f",
    ),
}
"""Expressions of a tensor in C++, and of a number in CUDA."""


def extension(name: str, problem: Problem, label: str) -> str:
    """Return the source for a problem of `EXPRESSIONS`; `label` makes it a new one."""
    in_cpp, in_cuda = EXPRESSIONS[name]
    if problem.device_class is DeviceClass.CUDA:
        return CUDA.format(expression=in_cuda, label=label)
    return CPP.format(expression=in_cpp, label=label)
