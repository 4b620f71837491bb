"""Tests of the languages of kernels that a source shows."""

from __future__ import annotations

import pytest

from cudal1.program.backends import Backend, in_words, kernels_by_backend

TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, BLOCK: tl.constexpr):
    tl.store(x, tl.load(x) * 2)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scale_kernel[(1,)](x, BLOCK=128)
        return x
"""
CUDA = '''import torch
from torch.utils.cpp_extension import load_inline

CODE = """
__global__ void scale(float* x) { x[threadIdx.x] *= 2; }
void run(torch::Tensor x) { scale<<<1, 32>>>(x.data_ptr<float>()); }
"""
module = load_inline("m", cpp_sources="void run(torch::Tensor);", cuda_sources=CODE,
                     functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        module.run(x)
        return x
'''
CUTE = """import cutlass
import cutlass.cute as cute
import torch


@cute.kernel
def scale_device(x: cute.Tensor):
    x[0] = x[0] * 2


@cute.jit
def scale(x: cute.Tensor):
    scale_device(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scale(x)
        return x
"""
TILELANG = """import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[1])
def scale(n):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(n):
                y[i] = x[i] * 2
    return main


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return scale(x.shape[0])(x)
"""
SOURCES = {
    Backend.TRITON: TRITON,
    Backend.CUDA: CUDA,
    Backend.CUTLASS_DSL: CUTE,
    Backend.TILELANG: TILELANG,
}


@pytest.mark.parametrize("backend", Backend)
def test_each_language_is_told_from_the_others(backend: Backend) -> None:
    assert list(kernels_by_backend(SOURCES[backend])) == [backend]


def test_kernels_are_named() -> None:
    assert in_words(TRITON) == "triton: scale_kernel"
    assert in_words(CUDA) == "cuda: scale"
    assert in_words(CUTE) == "cutlass-dsl: scale_device"
    assert in_words(TILELANG) == "tilelang: scale"


@pytest.mark.parametrize("backend", Backend)
def test_a_kernel_that_the_model_cannot_reach_does_not_count(backend: Backend) -> None:
    before, _, _ = SOURCES[backend].partition("    def forward")
    assert in_words(f"{before}    def forward(self, x):\n        return x * 2\n") == ""


@pytest.mark.parametrize(
    "source", ["", "class ModelNew(:", "import triton\n\n\nclass ModelNew: ..."]
)
def test_other_sources_have_no_kernels(source: str) -> None:
    assert kernels_by_backend(source) == {}
