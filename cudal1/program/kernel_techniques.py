"""The techniques inside kernels: of C++ by its words, of Triton by its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1.program.c_text import CText
from cudal1.program.kernel_sources import Kernels
from cudal1.program.live import Function
from cudal1.program.names import last_name
from cudal1.program.technique import Technique

_VECTOR = r"(?:u?(?:char|short|int|long|longlong)|float|double)[234]|half2|__half2|__nv_bfloat162"
_IN_KERNELS: tuple[tuple[Technique, re.Pattern[str]], ...] = (
    (Technique.SHARED_MEMORY, re.compile(r"\b__shared__\b")),
    (Technique.VECTOR_LOADS, re.compile(rf"\b(?:{_VECTOR})\s*(?:const\s*)?\*")),
    (
        Technique.WARP_SHUFFLE,
        re.compile(r"\b__(?:shfl(?:_\w+)?|ballot_sync|reduce_\w+_sync|match_\w+_sync)\s*\("),
    ),
    (Technique.TENSOR_CORES, re.compile(r"\bwmma\s*::|\bmma_sync\s*\(|\bwgmma\b")),
    (
        Technique.ASYNC_COPY,
        re.compile(r"\b(?:__pipeline_memcpy_async|memcpy_async|cp_async\w*)\s*\("),
    ),
    (Technique.UNROLLING, re.compile(r"#\s*pragma\s+(?:GCC\s+)?unroll\b(?!\s*\(?\s*1\b)")),
    (
        Technique.CACHE_HINTS,
        re.compile(r"\b__(?:ldg|ldcs|ldcg|ldca|ldlu|ldcv|stcs|stcg|stwt|stwb)\s*\("),
    ),
    (
        Technique.FAST_MATH,
        re.compile(
            r"\b__(?:expf|exp10f|logf|log2f|log10f|fdividef|sinf|cosf|tanf|powf|sincosf)\s*\("
        ),
    ),
    (
        Technique.HALF_PRECISION,
        re.compile(
            r"\b__(?:float2half|floats2half2|float22half2|float2bfloat16|floats2bfloat162|float22bfloat162)\w*\s*\("
        ),
    ),
    (Technique.LAUNCH_SHAPE, re.compile(r"\b__launch_bounds__\s*\(")),
)
"""Words that show a technique of a CUDA kernel."""
_ON_HOST: tuple[tuple[Technique, re.Pattern[str]], ...] = (
    (
        Technique.LIBRARY_CALL,
        re.compile(
            r"\b(?:cublas(?:Lt)?[A-Z]\w*|cudnn[A-Z]\w*|cusparse[A-Z]\w*|cblas_\w+)\s*\("
            r"|\b(?:cutlass|cub|thrust|dnnl)\s*::"
        ),
    ),
    (Technique.LAUNCH_SHAPE, re.compile(r"\bcudaOccupancy\w+\s*[(<]|\bmultiProcessorCount\b")),
    (Technique.STREAMS, re.compile(r"\bcudaStreamCreate\w*\s*\(|\bgetStreamFromPool\s*\(")),
    (
        Technique.THREADS,
        re.compile(
            r"#\s*pragma\s+omp\s+parallel\b|\bparallel_for\s*\(|\bstd\s*::\s*(?:thread|async)\b"
        ),
    ),
    (
        Technique.SIMD,
        re.compile(
            r"\b_mm\d*_\w+\s*\(|\bVectorized\s*<|#\s*pragma\s+omp\s+(?:\w+\s+)*simd\b|\bvld1q?_"
        ),
    ),
    (Technique.CUDA_GRAPH, re.compile(r"\bcudaGraphLaunch\s*\(")),
)
"""Words that show a technique of C++, whether or not it holds a kernel."""
_STRIDE = re.compile(r"\bgridDim\s*\.\s*x\s*\*|\*\s*gridDim\s*\.\s*x\b")
_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_IN_ASSEMBLY: tuple[tuple[Technique, re.Pattern[str]], ...] = (
    (Technique.TENSOR_CORES, re.compile(r"\b(?:wg)?mma\.")),
    (Technique.ASYNC_COPY, re.compile(r"\bcp\.async\b")),
    (Technique.VECTOR_LOADS, re.compile(r"\b(?:ld|st)\.global[\w.:]*\.v[24]\b")),
    (Technique.CACHE_HINTS, re.compile(r"\b(?:ld\.global\.nc|createpolicy)\b")),
    (Technique.WARP_SHUFFLE, re.compile(r"\bshfl\.sync\b")),
)
_FAST = ("use_fast_math", "-ffast-math", "-Ofast")
"""Flags that make functions approximate."""


def of_kernels(kernels: Kernels) -> Iterator[Technique]:
    """Yield the techniques that kernels and other compiled code show."""
    for text in kernels.texts:
        yield from _of_text(text)
    if kernels.texts and any(each in kernels.flags for each in _FAST):
        yield Technique.FAST_MATH
    if any(text.kernels for text in kernels.texts):
        yield Technique.CUDA
    elif kernels.texts:
        yield Technique.CPP
    if kernels.has_other:
        yield Technique.OTHER_KERNEL
    if kernels.launches:
        yield Technique.TRITON
        for call in kernels.launches:
            if {"num_warps", "num_stages"} & {each.arg for each in call.keywords}:
                yield Technique.LAUNCH_SHAPE
        for function in kernels.triton:
            yield from _of_triton(function)


def _of_text(text: CText) -> Iterator[Technique]:
    found = _ON_HOST + (_IN_KERNELS if text.kernels else ())
    for technique, pattern in found:
        if pattern.search(text.code):
            yield technique
    if not text.kernels:
        return
    if _STRIDE.search(text.code) and _LOOP.search(text.code):
        yield Technique.GRID_STRIDE
    for technique, pattern in _IN_ASSEMBLY:
        if pattern.search(text.assembly):
            yield technique


def _of_triton(function: Function) -> Iterator[Technique]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "autotune":
            yield Technique.LAUNCH_SHAPE
    for node in ast.walk(ast.Module(function.body, [])):
        if not isinstance(node, ast.Call):
            continue
        given = {each.arg: each.value for each in node.keywords}
        match last_name(node.func):
            case "dot":
                precision = _constant(given.get("input_precision"))
                if precision != "ieee" and _constant(given.get("allow_tf32")) is not False:
                    yield Technique.TENSOR_CORES
                if precision == "tf32" or _constant(given.get("allow_tf32")) is True:
                    yield Technique.TF32
            case "static_range":
                yield Technique.UNROLLING
            case "range" if "loop_unroll_factor" in given:
                yield Technique.UNROLLING
            case "num_programs":
                yield Technique.GRID_STRIDE
            case "load" | "store" if {"eviction_policy", "cache_modifier"} & set(given):
                yield Technique.CACHE_HINTS
            case "to" | "cast" if any(
                last_name(each) in ("float16", "bfloat16", "float8e4nv", "float8e5")
                for each in (*node.args, *given.values())
            ):
                yield Technique.HALF_PRECISION
            case name if name.startswith("fast_"):
                yield Technique.FAST_MATH
            case _:
                pass


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
