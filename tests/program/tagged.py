"""Pairs of sources for each technique: one that has it, one that nearly has it."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1.program.technique import Technique

PLAIN = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
"""A reference with none of the techniques."""


@dataclass(frozen=True)
class Pair:
    """Two candidates for one reference."""

    technique: Technique
    has: str
    nearly: str
    reference: str = PLAIN


def module(forward: str, made: str = "", before: str = "") -> str:
    """Return a candidate with these lines in its methods, and these before it."""
    lines = [
        "import torch, torch.nn as nn, torch.nn.functional as F",
        *before.splitlines(),
        "class ModelNew(nn.Module):",
        "    def __init__(self, size=4):",
        "        super().__init__()",
        *(f"        {line}" for line in made.splitlines()),
        "    def forward(self, x):",
        *(f"        {line}" for line in forward.splitlines()),
    ]
    return "\n".join(lines) + "\n"


def reference(forward: str, made: str = "") -> str:
    """Return a reference with these lines in its methods."""
    return module(forward, made).replace("ModelNew", "Model")


def cuda(body: str = "y[0] = x[0];", *, host: str = "", flags: str = "", head: str = "") -> str:
    """Return a candidate that compiles a kernel with this body, and launches it."""
    text = (
        "torch::Tensor run(torch::Tensor x);\n"
        + head
        + f"\n__global__ void own(const float* x, float* y, int n) {{ {body} }}\n"
        + f"torch::Tensor run(torch::Tensor x) {{ {host}\n own<<<1, 256>>>(0, 0, 4); return x; }}"
    )
    before = (
        "from torch.utils.cpp_extension import load_inline\n"
        f"SOURCE = {text!r}\n"
        f"ours = load_inline('own', cuda_sources=SOURCE, functions=['run'], cpp_sources='', "
        f"extra_cuda_cflags=[{flags!r}])"
    )
    return module("return ours.run(x)", before=before)


def triton(
    body: str = "tl.store(y, tl.load(x))", *, launch: str = "BLOCK=64", decorators: str = ""
) -> str:
    """Return a candidate that launches a Triton kernel with this body."""
    before = "\n".join(
        [
            "import triton, triton.language as tl",
            *decorators.splitlines(),
            "@triton.jit",
            "def own(x, y, BLOCK: tl.constexpr):",
            *(f"    {line}" for line in body.splitlines()),
        ]
    )
    return module(f"y = torch.empty_like(x)\nown[(1,)](x, y, {launch})\nreturn y", before=before)


T = Technique
CPP = (
    "from torch.utils.cpp_extension import load_inline\n"
    "ours = load_inline('a', cpp_sources='torch::Tensor run(torch::Tensor x) { return x; }')"
)
TWO = reference("return torch.relu(x * 2 + 1)")
PRODUCT = reference("return torch.matmul(x, self.weight)", "self.weight = nn.Parameter(x)")
WITH_WEIGHT = (
    "self.weight = nn.Parameter(torch.ones(4, 4))\nself.scale = nn.Parameter(torch.ones(4))"
)
PAIRS = (
    Pair(T.TRITON, triton(), triton().replace("own[(1,)](x, y, BLOCK=64)", "torch.neg(x)")),
    Pair(T.CUDA, cuda(), cuda().replace("return ours.run(x)", "return torch.relu(x)")),
    Pair(
        T.CPP, module("return ours.run(x)", before=CPP), module("return torch.relu(x)", before=CPP)
    ),
    Pair(
        T.OTHER_KERNEL,
        module("own[1, 1](x)\nreturn x", before="import numba\n@numba.njit\ndef own(x): return x"),
        module("return x", before="import numba\n@numba.njit\ndef own(x): return x"),
    ),
    Pair(
        T.TORCH_COMPILE,
        module("return self.f(x)", "self.f = torch.compile(torch.relu)"),
        module("return self.f(x)", "self.f = torch.compile(torch.relu, disable=True)"),
    ),
    Pair(
        T.TORCH_SCRIPT,
        module("return own(x)", before="@torch.jit.script\ndef own(x): return torch.relu(x)"),
        module("return own(x)", before="@torch.jit.ignore\ndef own(x): return torch.relu(x)"),
    ),
    Pair(
        T.CUDA_GRAPH,
        module(
            "self.graph.replay()\nreturn self.y",
            "self.graph = torch.cuda.CUDAGraph()\n"
            "with torch.cuda.graph(self.graph):\n    self.y = torch.relu(self.x)",
        ),
        module("return torch.relu(x)", "self.graph = torch.cuda.CUDAGraph()"),
    ),
    Pair(
        T.LIBRARY_CALL,
        cuda(host="cublasSgemm(handle, 0);"),
        cuda(head="#include <cublas_v2.h>\n// cublasSgemm(handle)\n"),
    ),
    Pair(
        T.FUSION,
        cuda("y[0] = fmaxf(x[0] * 2 + 1, 0);"),
        cuda().replace("return ours.run(x)", "return ours.run(x * 2 + 1)"),
        TWO,
    ),
    Pair(
        T.FUSED_OPERATOR,
        module("return F.silu(x)"),
        module("return x * torch.sigmoid(x)"),
        reference("return x * torch.sigmoid(x)"),
    ),
    Pair(
        T.ALGEBRA,
        module("return x @ self.weight.sum(0)", WITH_WEIGHT),
        module("return (x @ self.weight).sum(0)", WITH_WEIGHT),
        reference("return (x @ self.weight).sum(0)", WITH_WEIGHT),
    ),
    Pair(
        T.ALGEBRA,
        module("return self.scale.unsqueeze(1) * x", WITH_WEIGHT),
        module("return torch.diag(self.scale) @ x", WITH_WEIGHT),
        reference("return torch.matmul(torch.diag(self.scale), x)", WITH_WEIGHT),
    ),
    Pair(
        T.ALGEBRA,
        module("return (x @ self.u) @ self.v"),
        module("return x @ (self.u @ self.v)"),
        reference("w = self.u @ self.v\nreturn x @ w"),
    ),
    Pair(
        T.ALGEBRA,
        module("return F.max_pool2d(x, 4)"),
        module("return F.max_pool2d(F.max_pool2d(x, 2), 2)"),
        reference("return F.max_pool2d(F.max_pool2d(x, 2), 2)"),
    ),
    Pair(
        T.ALGEBRA,
        module("return F.conv2d(x, self.weight)", WITH_WEIGHT),
        module("return F.conv_transpose2d(x, self.weight)", WITH_WEIGHT),
        reference("return self.conv(x)", "self.conv = nn.ConvTranspose2d(4, 4, 3)"),
    ),
    Pair(
        T.FOLDED_WEIGHTS,
        module("return F.linear(x, self.weight * self.scale)", WITH_WEIGHT),
        module("return x * self.weight * self.scale", WITH_WEIGHT),
    ),
    Pair(
        T.FOLDED_WEIGHTS,
        module("return F.linear(x, self.folded)", f"{WITH_WEIGHT}\nself.folded = self.weight * 2"),
        module("return x", f"{WITH_WEIGHT}\nself.area = self.weight.size(0) * self.weight.size(1)"),
    ),
    Pair(
        T.PRECOMPUTED,
        module("return x @ self.turned", f"{WITH_WEIGHT}\nself.turned = self.weight.t()"),
        module("return x @ self.copy", f"{WITH_WEIGHT}\nself.copy = self.weight.detach().clone()"),
    ),
    Pair(
        T.PRECOMPUTED,
        module("return x + self.row", "self.row = torch.arange(4)"),
        module("return x + torch.arange(4)"),
        reference("return x + torch.arange(4)"),
    ),
    Pair(T.IN_PLACE, module("y = x + 1\nreturn y.relu_()"), module("y = x + 1\nreturn y.zero_()")),
    Pair(
        T.IN_PLACE,
        module("return F.relu(x + 1, inplace=True)"),
        module("return F.relu(x + 1, inplace=False)"),
    ),
    Pair(
        T.IN_PLACE,
        module("return self.relu(x + 1)", "self.relu = nn.ReLU(inplace=True)"),
        module("return self.relu(x + 1)", "self.relu = nn.ReLU()"),
    ),
    Pair(
        T.BUFFER_REUSE,
        module("return torch.relu(x, out=self.y)", "self.y = torch.empty(4)"),
        module("return torch.add(x, 1, out=None)", "self.y = torch.empty(4)"),
    ),
    Pair(
        T.BUFFER_REUSE,
        module("self.y.copy_(x)\nreturn self.y", "self.y = torch.empty(4)"),
        module("y = torch.empty_like(x)\ny.copy_(x)\nreturn y"),
    ),
    Pair(
        T.LAYOUT,
        module("return x.to(memory_format=torch.channels_last)"),
        module("return x.is_contiguous(memory_format=torch.channels_last)"),
    ),
    Pair(
        T.LAYOUT,
        module(
            "return x @ self.turned", f"{WITH_WEIGHT}\nself.turned = self.weight.t().contiguous()"
        ),
        module("return x @ self.weight.t()", WITH_WEIGHT),
    ),
    Pair(
        T.HALF_PRECISION,
        module("return torch.relu(x.half()).float()"),
        module("return torch.relu(x.float() if x.dtype == torch.float16 else x)"),
    ),
    Pair(
        T.HALF_PRECISION,
        module("with torch.autocast('cuda'):\n    return torch.relu(x)"),
        module("with torch.autocast('cuda', enabled=False):\n    return torch.relu(x)"),
    ),
    Pair(
        T.HALF_PRECISION,
        module("return x.to(low)", before="low = torch.bfloat16"),
        module("return x.to(low)", before="low = torch.float32"),
    ),
    Pair(
        T.TF32,
        module("return x @ x", before="torch.backends.cuda.matmul.allow_tf32 = True"),
        module("return x @ x", before="torch.backends.cuda.matmul.allow_tf32 = False"),
    ),
    Pair(
        T.TF32,
        module("return x @ x", "torch.set_float32_matmul_precision('high')"),
        module("return x @ x", "torch.set_float32_matmul_precision('highest')"),
    ),
    Pair(T.FAST_MATH, cuda("y[0] = __expf(x[0]);"), cuda("y[0] = expf(x[0]);")),
    Pair(T.FAST_MATH, cuda(flags="--use_fast_math"), cuda(flags="-O3")),
    Pair(T.LAUNCH_SHAPE, triton(launch="BLOCK=64, num_warps=8"), triton(launch="BLOCK=64")),
    Pair(
        T.LAUNCH_SHAPE,
        triton(decorators="@triton.autotune([triton.Config({'BLOCK': 64})], key=[])"),
        triton(decorators="@triton.heuristics({})"),
    ),
    Pair(
        T.LAUNCH_SHAPE,
        cuda().replace("__global__ void own", "__global__ void __launch_bounds__(256) own"),
        cuda("/* __launch_bounds__(256) */ y[0] = x[0];"),
    ),
    Pair(
        T.GRID_STRIDE,
        cuda("for (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = x[i];"),
        cuda("for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];"),
    ),
    Pair(
        T.GRID_STRIDE,
        triton("for i in range(tl.program_id(0), 9, tl.num_programs(0)):\n    tl.store(y + i, i)"),
        triton("for i in range(tl.program_id(0), 9, BLOCK):\n    tl.store(y + i, i)"),
    ),
    Pair(
        T.SHARED_MEMORY,
        cuda("__shared__ float s[32]; y[0] = s[0];"),
        cuda("float s[32]; // __shared__ float s[32];\n y[0] = s[0];"),
    ),
    Pair(
        T.SHARED_MEMORY,
        cuda(
            "y[0] = part();", head="__device__ float part() { __shared__ float s[1]; return s[0]; }"
        ),
        cuda(head="__device__ float part() { __shared__ float s[1]; return s[0]; }"),
    ),
    Pair(
        T.VECTOR_LOADS,
        cuda("*reinterpret_cast<float4*>(y) = *(const float4 *)x;"),
        cuda("float4 v = make_float4(x[0], x[1], x[2], x[3]); y[0] = v.x;"),
    ),
    Pair(
        T.VECTOR_LOADS,
        cuda('asm volatile("ld.global.v4.f32 {%0}, [%1];" : "=f"(y[0]) : "l"(x));'),
        cuda('asm volatile("ld.global.f32 %0, [%1];" : "=f"(y[0]) : "l"(x));'),
    ),
    Pair(
        T.WARP_SHUFFLE,
        cuda("y[0] = __shfl_xor_sync(-1, x[0], 1);"),
        cuda("__syncwarp(); y[0] = x[0];"),
    ),
    Pair(
        T.TENSOR_CORES,
        cuda("wmma::fragment<float> a; wmma::mma_sync(a, a, a, a);"),
        cuda('printf("wmma::mma_sync"); y[0] = x[0];'),
    ),
    Pair(
        T.TENSOR_CORES,
        triton("tl.store(y, tl.dot(x, x))"),
        triton("tl.store(y, tl.dot(x, x, input_precision='ieee'))"),
    ),
    Pair(T.ASYNC_COPY, cuda("__pipeline_memcpy_async(y, x, 16);"), cuda("memcpy(y, x, 16);")),
    Pair(
        T.UNROLLING,
        cuda("\n#pragma unroll\nfor (int i = 0; i < 4; ++i) y[i] = x[i];"),
        cuda("\n#pragma unroll 1\nfor (int i = 0; i < 4; ++i) y[i] = x[i];"),
    ),
    Pair(
        T.UNROLLING,
        triton("for i in tl.static_range(4):\n    tl.store(y + i, i)"),
        triton("for i in tl.range(4):\n    tl.store(y + i, i)"),
    ),
    Pair(T.CACHE_HINTS, cuda("y[0] = __ldg(x);"), cuda("y[0] = x[0]; // __ldg(x)\n")),
    Pair(
        T.CACHE_HINTS,
        triton("tl.store(y, tl.load(x, eviction_policy='evict_first'))"),
        triton("tl.store(y, tl.load(x, mask=x > 0))"),
    ),
    Pair(
        T.STREAMS,
        module(
            "with torch.cuda.stream(self.side):\n    y = torch.relu(x)\nreturn y",
            "self.side = torch.cuda.Stream()",
        ),
        module(
            "side = torch.cuda.Stream()\n"
            "with torch.cuda.stream(side):\n    torch.relu(self.x)\n"
            "with torch.cuda.graph(self.graph):\n    self.y = torch.relu(self.x)\n"
            "self.graph.replay()\nreturn self.y"
        ),
    ),
    Pair(
        T.THREADS,
        cuda(host="at::parallel_for(0, 4, 1, f);"),
        cuda(host="for (int i = 0; i < 4; ++i) f(i);"),
    ),
    Pair(T.SIMD, cuda(host="auto v = _mm256_loadu_ps(p);"), cuda(head="#include <immintrin.h>\n")),
    Pair(
        T.LIBRARY_TUNING,
        module("return torch.relu(x)", "torch.backends.cudnn.benchmark = True"),
        module("return torch.relu(x)", "torch.backends.cudnn.deterministic = True"),
    ),
    Pair(
        T.NO_AUTOGRAD,
        module("with torch.no_grad():\n    y = torch.relu(x)\nreturn y"),
        module("with torch.no_grad():\n    _ = torch.relu(x)\nreturn torch.relu(x)"),
    ),
    Pair(
        T.NO_AUTOGRAD,
        module("return torch.relu(x)").replace(
            "    def forward", "    @torch.no_grad()\n    def forward"
        ),
        module("with torch.no_grad():\n    def f(y):\n        return y\nreturn torch.relu(x)"),
    ),
)
