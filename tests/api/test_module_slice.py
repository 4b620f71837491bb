"""Tests that a slice of a module has what a name needs, and nothing else."""

from __future__ import annotations

import pytest

from cudal1.api.module_slice import joined, needed_by

MODULE = '''"""A module."""
import math, cudal1
import torch
import torch.nn as nn
from helpers import *
from other import a, b as c

torch.set_default_dtype(torch.float64)
SIZE = 4
UNUSED = 5
TABLE = {}
TABLE["size"] = SIZE
print(cudal1.judge("x", "y"))

try:
    import fast
except ImportError as error:
    fast = None

def helper(x):
    return x * SIZE if fast else c(x)

@torch.no_grad()
def decorated(x):
    return x

class Model(nn.Module):
    # a comment
    def forward(self, x):
        return helper(x) + TABLE["size"] + decorated(x)

verdict = cudal1.judge(Model, Model)

class Other(Model):
    pass

if __name__ == "__main__":
    SIZE = 9
    main()
'''


def slice_of(source: str, *names: str) -> str:
    return joined(needed_by(source, names))


def test_a_slice_has_what_a_class_needs_through_others() -> None:
    found = slice_of(MODULE, "Model")
    for line in (
        "import torch\n",
        "import torch.nn as nn\n",
        "from other import b as c\n",
        "SIZE = 4\n",
        'TABLE["size"] = SIZE\n',
        "    fast = None\n",
        "@torch.no_grad()\ndef decorated",
        "    # a comment\n",
        "torch.set_default_dtype(torch.float64)\n",
    ):
        assert line in found
    compile(found, "slice", "exec")


@pytest.mark.parametrize(
    "absent", ["cudal1", "math", "UNUSED", "Other", "main()", "SIZE = 9", "print", "import a"]
)
def test_a_slice_lacks_what_a_class_does_not_need(absent: str) -> None:
    assert absent not in slice_of(MODULE, "Model")


def test_a_star_import_stays_since_it_may_define_any_name() -> None:
    assert "from helpers import *" in slice_of(MODULE, "SIZE")


def test_a_base_class_is_part_of_the_slice() -> None:
    found = slice_of(MODULE, "Other")
    assert found.index("class Model") < found.index("class Other")


def test_names_that_are_local_to_a_function_bind_nothing() -> None:
    source = "def f():\n    x = 1\n\n\nx = 2\n\n\ndef g():\n    return x\n"
    assert slice_of(source, "g") == "x = 2\n\ndef g():\n    return x\n"


def test_imports_from_the_future_come_first_and_once() -> None:
    future = "from __future__ import annotations"
    both = [*needed_by("a = 1\n", ["a"]), *needed_by(f"{future}\nb = 1\n", ["b"])]
    assert joined([*both, *both]) == f"{future}\n\na = 1\n\nb = 1\n"
