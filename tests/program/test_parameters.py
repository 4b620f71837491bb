"""Tests of the numeric parameters that a candidate's source exposes."""

from __future__ import annotations

import pytest

from cudal1.program.parameters import (
    MAX_PARAMETERS,
    Parameter,
    parameters,
    skeleton_of,
    with_values,
)

TRITON = """import triton

BLOCK_M = 64
NUM_WARPS: int = 4  # as on an A100
ROWS = 7
# tune: ROWS in 1, 7, 14
EPSILON = 1


class ModelNew:
    BLOCK = 8
"""
CUDA = '''CODE = """
#define BLOCK 256
// tune: LANES in 1, 2, 4
constexpr int LANES = 2;  // of a vector
__global__ void f(float* x) { const int TILE = threadIdx.x; }
"""
BLOCK = 256
'''


def test_declared_and_named_constants_are_parameters() -> None:
    assert parameters(TRITON) == (
        Parameter("BLOCK_M", 64, (16, 32, 64, 128, 256)),
        Parameter("NUM_WARPS", 4, (1, 2, 4, 8, 16)),
        Parameter("ROWS", 7, (1, 7, 14)),
    )


def test_constants_in_the_text_of_a_kernel_are_parameters() -> None:
    assert parameters(CUDA) == (
        Parameter("BLOCK", 256, (64, 128, 256, 512, 1024)),
        Parameter("LANES", 2, (1, 2, 4)),
    )


def test_all_definitions_of_a_name_are_changed_and_nothing_else() -> None:
    changed = with_values(CUDA, {"BLOCK": 64})
    assert changed == CUDA.replace("256", "64")
    assert with_values(TRITON, {"NUM_WARPS": 8}) == TRITON.replace("= 4  #", "= 8  #")


@pytest.mark.parametrize(
    "source",
    [
        "BLOCK = 64\nCODE = '''\n#define BLOCK 32\n'''\n",
        "BLOCK = 2 * 32\n",
        "BLOCK = 64.0\n",
        "block = 64\n",
        "    BLOCK = 64\n",
        "BLOCK = 48\n",
        "SEED = 64\n",
        "# tune: DEPTH in 1, 2\n",
        "BLOCK = 999999999999999999999999999\n",
    ],
    ids=["two values", "product", "float", "small", "local", "no power", "other", "none", "huge"],
)
def test_only_clear_constants_are_parameters(source: str) -> None:
    assert parameters(source) == ()


def test_variants_have_one_skeleton_and_other_sources_have_others() -> None:
    variant = with_values(TRITON, {"BLOCK_M": 256, "ROWS": 1})
    assert parameters(variant) != parameters(TRITON)
    assert skeleton_of(variant) == skeleton_of(TRITON)
    assert skeleton_of(TRITON.replace("EPSILON = 1", "EPSILON = 2")) != skeleton_of(TRITON)


def test_only_the_first_parameters_count() -> None:
    source = "".join(f"BLOCK_{number} = 64\n" for number in range(MAX_PARAMETERS + 3))
    assert len(parameters(source)) == MAX_PARAMETERS
