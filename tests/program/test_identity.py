"""Copies share an id whatever their names, comments and layout; any other change gives another."""

from __future__ import annotations

import time

import pytest

from cudal1.program.identity import program_id
from tests.harness.corpus import HONEST

PLAIN = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        y = torch.relu(x)
        return self.layer(y)
"""

SAME = '''
"""A layer."""
import torch
from torch import nn


class ModelNew(nn.Module):
    """Apply a linear layer to what is positive."""

    def __init__(self, width: int):
        super(ModelNew, self).__init__()
        self.linear = nn.Linear(width, width)  # the layer

    def forward(self, tokens):

        positive = torch.relu(tokens)
        return self.linear(positive)


def get_inputs():
    return [torch.randn(4, 4)]
'''

KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

built = load_inline(name="relu", cpp_sources="""
// the kernel
torch::Tensor run(torch::Tensor x) { return x.relu(); }
""", functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.run(x)
'''


HUGE = f"class ModelNew:\n    x = 0x{'f' * 5000}"


def test_names_comments_layout_and_unneeded_definitions_do_not_count() -> None:
    assert program_id(PLAIN) == program_id(SAME)


@pytest.mark.parametrize(
    ("old", "new"),
    [("relu", "tanh"), ("(size, size)", "(size, size, False)"), ("self.layer(y)", "self.layer(x)")],
)
def test_another_computation_has_another_id(old: str, new: str) -> None:
    assert program_id(PLAIN) != program_id(PLAIN.replace(old, new))


def test_comments_and_blanks_of_a_kernel_do_not_count() -> None:
    other = KERNEL.replace("// the kernel", "/* the\n\nkernel */").replace(
        "{ return", "{\n  return"
    )
    assert program_id(KERNEL) == program_id(other)
    assert program_id(KERNEL) != program_id(KERNEL.replace("x.relu", "x.tanh"))


def test_the_name_of_what_was_compiled_does_not_count() -> None:
    assert program_id(KERNEL) == program_id(KERNEL.replace("built", "extension"))


def test_different_programs_have_different_ids() -> None:
    sources = {case.source for case in HONEST}
    assert len({program_id(source) for source in sources}) == len(sources)


@pytest.mark.parametrize(
    "source",
    ["", "def", "x = 1", "(" * 3000, "-" * 50_000 + "x", "+".join("x" * 20_000), "\0", HUGE],
)
def test_any_text_has_an_id(source: str) -> None:
    assert program_id(source) == program_id(f"{source}\n")


def test_comments_that_never_end_are_read_once() -> None:
    def seconds(comment: str) -> float:
        source = KERNEL.replace("// the kernel", comment * 20_000)
        started = time.process_time()
        program_id(source)
        return time.process_time() - started

    assert seconds("/*a ") < 20 * seconds("/*a*/")  # some thousand times as long if each is


def test_a_kernel_in_python_keeps_its_integer_divisions() -> None:
    source = "def half(x):\n    return x // 2\n"
    text = f'{PLAIN}\nrun("""\n{source}""")\n'
    assert program_id(text) != program_id(text.replace("// 2", "// 4"))


def test_an_attribute_of_another_object_is_no_name_of_the_sources_own() -> None:
    method = "\n    def relu(self, x):\n        return x\n"
    text = PLAIN.replace("torch.relu(x)", "x.relu()") + method
    assert program_id(text) != program_id(text.replace("relu", "sigmoid"))


def test_other_files_of_a_source_count() -> None:
    beside = "\n# cudal1: file helpers.py\nA = {}\n"
    assert program_id(PLAIN + beside.format(1)) != program_id(PLAIN + beside.format(2))
