"""Define forty candidates for thirteen of KernelBench's problems, half of them inline CUDA.

Problems are named by level, number and name; their code is not here. The chosen ones have 64 to 560
MiB of inputs and outputs a call, and references of some 0.1 to 4 ms on an H100 (a guess). Most
others of levels 1 and 2 hold gigabytes, and drawing and copying these takes both harnesses longer
than their own work. Eight of them end in operations on each element alone, which candidates fuse.

The expected verdict of each is written beside it. All words and code are ours. This file is long
because most of it is such code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The language of a candidate."""

    PYTORCH = "pytorch"
    TRITON = "triton"
    CUDA = "cuda"


class Expected(StrEnum):
    """The verdict that we expect of a candidate."""

    CORRECT = "correct"
    WRONG = "wrong"
    NARROW = "narrow"
    """Right only on inputs like those of `get_inputs`: wrong wherever others are tried, too."""


@dataclass(frozen=True)
class Place:
    """A problem of KernelBench."""

    level: int
    number: int
    name: str
    """Name in the file's name after the number, as `cudal1.suite` spells it."""


@dataclass(frozen=True)
class Entry:
    """One candidate."""

    name: str
    place: Place
    kind: Kind
    source: str
    expected: Expected = Expected.CORRECT


SQUARE = Place(1, 1, "square_matrix_multiplication")
TENSOR = Place(1, 10, "3d_tensor_matrix_multiplication")
DIAGONAL = Place(1, 12, "matmul_with_diagonal_matrices")
LAYER_NORM = Place(1, 40, "layernorm")
NEW_GELU = Place(1, 88, "mingptnewgelu")
LEAKY = Place(2, 12, "gemm_multiply_leakyrelu")
MISH = Place(2, 29, "matmul_mish_mish")
RELU_SWISH = Place(2, 57, "conv2d_relu_hardswish")
SWISH_RELU = Place(2, 69, "conv2d_hardswish_relu")
RESIDUAL = Place(2, 70, "gemm_sigmoid_scaling_residualadd")
HALVE = Place(2, 71, "conv2d_divide_leakyrelu")
ADD = Place(2, 76, "gemm_add_relu")
GELU = Place(2, 86, "matmul_divide_gelu")

MODULE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
{init}    def forward(self, {arguments}):
{body}"""
CUDA = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ float point(float v, float p, float q, float s) {{
    {formula}
}}

{kernel}
torch::Tensor run(torch::Tensor v, torch::Tensor side, double p, double q) {{
    auto y = torch::empty_like(v);
    long n = v.numel(), width = v.size(-1);
    {launch}
    return y;
}}
"""
ours = load_inline(
    "{name}", functions=["run"], cuda_sources=SOURCE,
    cpp_sources="torch::Tensor run(torch::Tensor v, torch::Tensor side, double p, double q);",
)


class ModelNew(nn.Module):
{init}    def forward(self, {arguments}):
        {body}
'''
SCALAR_KERNEL = """\
__global__ void each(const float* v, const float* side, float* y, long n, long width,
                     float p, float q) {{
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = point(v[i], p, q, {side});
}}
"""
SCALAR_LAUNCH = """\
each<<<(n + {block} - 1) / {block}, {block}>>>(
        v.data_ptr<float>(), side.data_ptr<float>(), y.data_ptr<float>(), n, width, p, q);"""
VECTOR_KERNEL = """\
__global__ void fours(const float4* v, const float* side, float4* y, long n, long width,
                      float p, float q) {{
    long step = (long)gridDim.x * blockDim.x;
    for (long k = (long)blockIdx.x * blockDim.x + threadIdx.x; k < n / 4; k += step) {{
        float4 a = v[k];
        long i = 4 * k;
        a.x = point(a.x, p, q, {side}); i++;
        a.y = point(a.y, p, q, {side}); i++;
        a.z = point(a.z, p, q, {side}); i++;
        a.w = point(a.w, p, q, {side});
        y[k] = a;
    }}
}}
"""
VECTOR_LAUNCH = """\
TORCH_CHECK(n % 4 == 0, "a multiple of four");
    fours<<<132 * 2048 / {block}, {block}>>>(
        (const float4*)v.data_ptr<float>(), side.data_ptr<float>(),
        (float4*)y.data_ptr<float>(), n, width, p, q);"""
TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def each(v_ptr, side_ptr, y_ptr, n, width, p, q, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + i, mask=i < n)
{formula}
    tl.store(y_ptr + i, y, mask=i < n)


def run(v, side, p, q):
    y = torch.empty_like(v)
    n = v.numel()
    each[(triton.cdiv(n, {block}),)](v, side, y, n, v.shape[-1], p, q, BLOCK={block})
    return y


class ModelNew(nn.Module):
{init}    def forward(self, {arguments}):
        {body}
"""


@dataclass(frozen=True)
class Pointwise:
    """A problem with an output of each element of one tensor alone, and our code for it."""

    place: Place
    cuda: str
    """Statements of C++ that return the value at `v`; `p`, `q`: scalars, `s`: of a side tensor."""
    triton: str = ""
    """Statements of Triton that assign the value to `y`."""
    init: str = ""
    """Statements of `__init__`; those of level 2 make the reference's parameters in its order."""
    arguments: str = "x"
    given: str = "x, x, 0.0, 0.0"
    """Tensor, side tensor, `p` and `q`, in `forward`."""
    side: str = "0.0f"
    """C++ expression of the side tensor's value for element `i` of rows of `width`."""


def _init(arguments: str, *lines: str) -> str:
    body = "".join(f"        {line}\n" for line in ("super().__init__()", *lines))
    return f"    def __init__(self, {arguments}):\n{body}\n"


LINEAR = "self.linear = nn.Linear(fan_in, fan_out)"
GEMM = "self.gemm = nn.Linear(fan_in, fan_out)"
CONV = "self.conv = nn.Conv2d(planes, more_planes, size)"
POINTWISE = {
    "diagonal": Pointwise(
        DIAGONAL,
        "return v * s;",
        "    y = v * tl.load(side_ptr + i // width, mask=i < n)",
        arguments="a, b",
        given="b, a, 0.0, 0.0",
        side="side[i / width]",
    ),
    "new_gelu": Pointwise(
        NEW_GELU,
        "float u = 0.7978845608f * (v + 0.044715f * v * v * v);\n"
        "    return 0.5f * v * (1.0f + tanhf(u));",
        "    u = 0.7978845608 * (v + 0.044715 * v * v * v)\n    y = v * tl.sigmoid(2.0 * u)",
    ),
    "leaky": Pointwise(
        LEAKY,
        "float u = v * p;\n    return u > 0.0f ? u : u * q;",
        init=_init("fan_in, fan_out, factor, slope", GEMM, "self.p, self.q = factor, slope"),
        given="self.gemm(x), x, self.p, self.q",
    ),
    "mish": Pointwise(
        MISH,
        "for (int k = 0; k < 2; k++) v = v * tanhf(v > 20.0f ? v : log1pf(expf(v)));\n"
        "    return v;",
        "    for _ in tl.static_range(2):\n"
        "        e = tl.exp(tl.minimum(v, 20.0))\n"
        "        v = tl.where(v > 20.0, v, v * (e * (e + 2.0) / (e * (e + 2.0) + 2.0)))\n"
        "    y = v",
        init=_init("fan_in, fan_out", LINEAR),
        given="self.linear(x), x, 0.0, 0.0",
    ),
    "relu_swish": Pointwise(
        RELU_SWISH,
        "float u = fmaxf(v, 0.0f);\n    return u * fminf((u + 3.0f) / 6.0f, 1.0f);",
        "    u = tl.maximum(v, 0.0)\n    y = u * tl.minimum((u + 3.0) / 6.0, 1.0)",
        init=_init("planes, more_planes, size", CONV),
        given="self.conv(x), x, 0.0, 0.0",
    ),
    "swish_relu": Pointwise(
        SWISH_RELU,
        "return v > 0.0f ? v * fminf(v + 3.0f, 6.0f) * (1.0f / 6.0f) : 0.0f;",
        init=_init("planes, more_planes, size", CONV),
        given="self.conv(x), x, 0.0, 0.0",
    ),
    "halve": Pointwise(
        HALVE,
        "float u = v / p;\n    return u > 0.0f ? u : 0.01f * u;",
        "    u = v / p\n    y = tl.where(u > 0.0, u, 0.01 * u)",
        init=_init("planes, more_planes, size, divisor", CONV, "self.p = divisor"),
        given="self.conv(x), x, self.p, 0.0",
    ),
    "residual": Pointwise(
        RESIDUAL,
        "return p / (1.0f + expf(-v)) + v;",
        "    y = p * tl.sigmoid(v) + v",
        init=_init("fan_in, fan_out, factor", GEMM, "self.p = factor"),
        given="self.gemm(x), x, self.p, 0.0",
    ),
    "add": Pointwise(
        ADD,
        "return fmaxf(v + s, 0.0f);",
        init=_init(
            "fan_in, fan_out, shape",
            "self.gemm = nn.Linear(fan_in, fan_out, bias=False)",
            "self.bias = nn.Parameter(torch.randn(shape))",
        ),
        given="self.gemm(x), self.bias, 0.0, 0.0",
        side="side[i % width]",
    ),
    "gelu": Pointwise(
        GELU,
        "float u = v / p;\n    return 0.5f * u * (1.0f + erff(u * 0.7071067812f));",
        init=_init("fan_in, fan_out, divisor", LINEAR, "self.p = divisor"),
        given="self.linear(x), x, self.p, 0.0",
    ),
}
"""Problems by the name that their candidates carry."""

SPOILT = {
    "cuda-fours-halve": ("v / p", "v", Expected.WRONG),
    "cuda-each-relu_swish": ("fmaxf(v, 0.0f)", "fmaxf(v, zero)", Expected.WRONG),
    "cuda-fours-diagonal": ("v * s", "fabsf(v) * s", Expected.NARROW),
}
"""Replacements in a formula, with the expected verdict: one forgets a step, one does not compile,
and one is right where nothing is negative."""

BLOCKS = (128, 256, 512, 1024)
"""Threads of a block; a block in Triton has four times as many elements."""


def entries() -> list[Entry]:
    """Return all candidates, by problem."""
    found = _in_pytorch()
    for number, (name, formula) in enumerate(POINTWISE.items()):
        block = BLOCKS[number % len(BLOCKS)]
        if formula.triton:
            source = TRITON.format(
                formula=formula.triton,
                block=4 * block,
                init=formula.init,
                arguments=formula.arguments,
                body=f"return run({formula.given})",
            )
            found.append(Entry(f"triton-{name}", formula.place, Kind.TRITON, source))
        found += [
            _inline(f"cuda-each-{name}", formula, SCALAR_KERNEL, SCALAR_LAUNCH, block),
            _inline(f"cuda-fours-{name}", formula, VECTOR_KERNEL, VECTOR_LAUNCH, block),
        ]
    return sorted(found, key=lambda entry: (entry.place.level, entry.place.number, entry.name))


def _in_pytorch() -> list[Entry]:
    norm = _init("shape", "self.ln = nn.LayerNorm(shape)")
    wrong = Expected.WRONG
    return [
        _module("square-mm", SQUARE, "return torch.mm(a, b)", arguments="a, b"),
        _module(
            "square-half",
            SQUARE,
            "return (a.half() @ b.half()).float()",
            arguments="a, b",
            expected=wrong,
        ),
        _module(
            "tensor-flat",
            TENSOR,
            "return (a.flatten(0, 1) @ b).unflatten(0, a.shape[:2])",
            arguments="a, b",
        ),
        _module(
            "tensor-einsum", TENSOR, 'return torch.einsum("nmk,kl->nml", a, b)', arguments="a, b"
        ),
        _module("diagonal-mul", DIAGONAL, "return b * a[:, None]", arguments="a, b"),
        _module(
            "layer_norm-functional",
            LAYER_NORM,
            "return F.layer_norm(x, x.shape[1:], self.ln.weight, self.ln.bias, 1e-5)",
            init=norm,
        ),
        _module(
            "layer_norm-moments",
            LAYER_NORM,
            "var, mean = torch.var_mean(x, dim=(1, 2, 3), keepdim=True, correction=0)",
            "return (x - mean) * torch.rsqrt(var + 1e-5) * self.ln.weight + self.ln.bias",
            init=norm,
        ),
        _module("new_gelu-builtin", NEW_GELU, 'return F.gelu(x, approximate="tanh")'),
        _module(
            "leaky-addmm",
            LEAKY,
            "w, p = self.gemm.weight, self.p",
            "y = torch.addmm(self.gemm.bias, x, w.t(), beta=p, alpha=p)",
            "return F.leaky_relu_(y, self.q)",
            init=POINTWISE["leaky"].init,
        ),
        _module(
            "leaky-no_such_name",
            LEAKY,
            "return self.no_such_name(self.gemm(x))",
            init=POINTWISE["leaky"].init,
            expected=wrong,
        ),
        _module(
            "swish_relu-in_place",
            SWISH_RELU,
            "y = self.conv(x).relu_()",
            "return F.hardswish(y, inplace=True)",
            init=POINTWISE["swish_relu"].init,
        ),
        _module(
            "halve-in_place",
            HALVE,
            "return F.leaky_relu_(self.conv(x).div_(self.p), 0.01)",
            init=POINTWISE["halve"].init,
        ),
        _module(
            "add-bias",
            ADD,
            "return F.linear(x, self.gemm.weight, self.bias).relu_()",
            init=POINTWISE["add"].init,
        ),
        _module(
            "gelu-remembers",
            GELU,
            'if not hasattr(self, "y"):',
            "    self.y = F.gelu(self.linear(x) / self.p)",
            "return self.y.clone()",
            init=POINTWISE["gelu"].init,
            expected=wrong,
        ),
    ]


def _module(
    name: str,
    place: Place,
    *lines: str,
    init: str = "",
    arguments: str = "x",
    expected: Expected = Expected.CORRECT,
) -> Entry:
    body = "".join(f"        {line}\n" for line in lines)
    source = MODULE.format(init=init, arguments=arguments, body=body)
    return Entry(f"pytorch-{name}", place, Kind.PYTORCH, source, expected)


def _inline(name: str, formula: Pointwise, kernel: str, launch: str, block: int) -> Entry:
    right, wrong, expected = SPOILT.get(name, ("", "", Expected.CORRECT))
    source = CUDA.format(
        name=name.replace("-", "_"),
        formula=formula.cuda.replace(right, wrong),
        kernel=kernel.format(side=formula.side),
        launch=launch.format(block=block),
        init=formula.init,
        arguments=formula.arguments,
        body=f"return ours.run({formula.given})",
    )
    return Entry(name, formula.place, Kind.CUDA, source, expected)
