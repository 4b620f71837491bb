"""A copy of the reference is recognised by its program, not its names; a rewrite is no copy."""

from __future__ import annotations

import textwrap

import pytest

from benchmarks.answers.disguise import disguised
from cudal1.files import source_files
from cudal1.harness.screen.sameness import is_copy
from cudal1.problem import NULL_MARK, DeviceClass, Problem
from cudal1.suite import loader
from tests.harness.conftest import problem_named
from tests.harness.corpus import EXPLOITS, HONEST, Case

REFERENCE = '''
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 0.5
batch = 16


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return F.relu(self.linear(x))


class Model(nn.Module):
    """A block, scaled."""

    def __init__(self, dim, times=2):
        super(Model, self).__init__()
        self.blocks = nn.ModuleList([Block(dim) for _ in range(times)])

    def forward(self, x):
        # one after the other
        for block in self.blocks:
            x = block(x)
        return scaled(x, factor=SCALE)


def scaled(value, factor):
    return value * factor / math.sqrt(2)


def get_inputs():
    return [torch.randn(batch, 8)]


def get_init_inputs():
    return [8]
'''

RENAMED = '''
from math import sqrt
from torch import nn
from torch.nn.functional import relu


HALF: float = 1


class ModelNew(nn.Module):
    def __init__(this, width, depth=2):
        super().__init__()
        this.layers = nn.ModuleList([Layer(width) for index in range(depth)])

    def forward(this, tokens):
        """Layer by layer."""
        for each in this.layers:
            tokens = each(tokens)
        return half(tokens, by=FACTOR)


FACTOR = 0.5


def half(number, by):
    return number * by / sqrt(2)


class Layer(nn.Module):
    def __init__(this, width: int):
        super().__init__()
        this.weights = nn.Linear(width, width)

    def forward(this, tokens):
        return relu(this.weights(tokens))
'''


def with_new(text: str) -> str:
    return text.replace("Model(", "ModelNew(").replace("(Model,", "(ModelNew,")


PROBLEMS = loader.load_suite(DeviceClass.CPU)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_reference_is_a_copy_of_itself_and_of_no_other(problem: Problem) -> None:
    source = with_new(problem.source)
    assert [other.name for other in PROBLEMS if is_copy(source, other.source)] == [problem.name]


def test_names_comments_formatting_and_order_of_definitions_make_no_difference() -> None:
    assert is_copy(RENAMED.replace("HALF: float = 1\n", ""), REFERENCE)


@pytest.mark.parametrize(
    "source",
    [
        with_new(REFERENCE).replace("def get_inputs", "def unused"),
        REFERENCE + "\nModelNew = Model\n",
        REFERENCE + "\nclass ModelNew(Model):\n    '''The same.'''\n",
        REFERENCE + "\nclass Middle(Model):\n    pass\nModelNew = Middle\n",
        with_new(REFERENCE).replace("import math", "import math, time\nimport numpy as np"),
        with_new(REFERENCE) + "\nif __name__ == '__main__':\n    print(ModelNew(8))\n",
        with_new(REFERENCE) + "\ndef helper(x):\n    return x + 1\n",
        "\ufeff" + with_new(REFERENCE).replace("\n", "\r\n"),
    ],
)
def test_code_that_the_module_does_not_need_makes_no_difference(source: str) -> None:
    assert is_copy(source, REFERENCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("F.relu(", "F.gelu("),
        ("SCALE = 0.5", "SCALE = 0.25"),
        ("times=2", "times=1"),
        ("x = block(x)", "x = block(x) + 0"),
        ("self.linear(x)", "self.linear(x.half()).float()"),
        ("        for block in", "        x.relu_()\n        for block in"),
        ("batch = 16", "torch.backends.mkldnn.enabled = False"),
        ("batch = 16", "torch.set_num_threads(2)"),
        ("batch = 16", "nn.Linear.forward = None"),
        ("import math", "import math\nimport some_extension"),
        ("class Block", "@torch.compile\nclass Block"),
        ("value * factor", "factor * value"),
        ("super(Model, self).__init__()", "super(Model, self).__init__()\n        self.eval()"),
    ],
)
def test_any_change_of_the_program_makes_a_difference(old: str, new: str) -> None:
    assert old in REFERENCE
    assert not is_copy(with_new(REFERENCE.replace(old, new, 1)), REFERENCE)


@pytest.mark.parametrize(
    "hidden",
    [
        "if __name__ != '__main__':\n    {change}",
        "if __name__ == 'candidate':\n    {change}",
        "if __name__ == '__main__':\n    pass\nelse:\n    {change}",
        "class Unused:\n    {change}",
        "class Unused:\n    done = {call}",
        "def unused(x={call}):\n    pass",
        "def unused(x: {call}):\n    pass",
        "def unused() -> {call}:\n    pass",
        "class Unused:\n    def unused(self, x: {call}):\n        pass",
        "X = [0 for ModelNew.forward in [None]]",
        "class A:\n    def __init_subclass__(cls):\n        {change}\nclass B(A):\n    pass",
    ],
)
def test_code_cannot_hide_where_a_copy_is_not_looked_at(hidden: str) -> None:
    change, call = "ModelNew.forward = None", "setattr(ModelNew, 'forward', None)"
    assert not is_copy(
        with_new(REFERENCE) + "\n" + hidden.format(change=change, call=call), REFERENCE
    )


@pytest.mark.parametrize(
    "source",
    [
        with_new(REFERENCE).replace("SCALE = 0.5", "SCALE = 0.5\nfrom numpy import *"),
        with_new(REFERENCE).replace("torch.nn.functional", "torch._refs.nn.functional")
        + "\ndef unused():\n    import torch.nn.functional as F\n",
    ],
    ids=["any name", "another name where nobody looks"],
)
def test_an_import_that_may_mean_something_else_makes_a_difference(source: str) -> None:
    assert not is_copy(source, REFERENCE)


def test_a_copy_s_other_files_are_the_reference_s() -> None:
    reference = REFERENCE.replace("import math", "import math\nfrom helpers import scaled as s")
    reference = reference.replace("return scaled(", "return s(")
    beside = {"helpers.py": "def scaled(value, factor):\n    return value\n"}
    mine, theirs = with_new(reference), source_files.join(reference, beside)
    assert is_copy(source_files.join(mine, beside), theirs)
    slower = {"helpers.py": beside["helpers.py"].replace("value\n", "value + 0\n")}
    assert not is_copy(source_files.join(mine, slower), theirs)
    assert not is_copy(mine, theirs)


def test_names_that_pytorch_gives_its_objects_are_not_the_source_s_own() -> None:
    """The reference sums a tensor's elements, though its own attribute has the same name."""
    text = """
    import torch.nn as nn

    class {0}(nn.Module):
        def __init__(self):
            super().__init__()
            self.{1} = 1

        def forward(self, x):
            return x.{1}(-1)
    """
    reference, source, copy = (
        textwrap.dedent(text).format(*names)
        for names in (("Model", "sum"), ("ModelNew", "mean"), ("ModelNew", "sum"))
    )
    assert is_copy(copy, reference)
    assert not is_copy(source, reference)


def test_effects_on_two_different_settings_are_not_the_same() -> None:
    """Neither setting is a name of the source's own."""
    settings = "torch.backends.cudnn.benchmark", "torch.backends.cudnn.deterministic"
    one, other = (f"{REFERENCE}\n{setting} = True\n" for setting in settings)
    assert is_copy(with_new(one), one)
    assert not is_copy(with_new(one), other)


def test_names_that_trade_places_make_a_difference() -> None:
    text = """
    import torch.nn as nn

    class {name}(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first = nn.Linear(width, width)
            self.second = nn.Tanh()

        def forward(self, x, y):
            return self.{outer}(self.{inner}({one} - {two}))
    """
    given = {"outer": "first", "inner": "second", "one": "x", "two": "y"}
    reference = textwrap.dedent(text).format(name="Model", **given)
    for changes in ({"one": "y", "two": "x"}, {"outer": "second", "inner": "first"}):
        source = textwrap.dedent(text).format(name="ModelNew", **given | changes)
        assert not is_copy(source, reference)
    assert is_copy(textwrap.dedent(text).format(name="ModelNew", **given), reference)


@pytest.mark.parametrize("case", [*HONEST, *EXPLOITS], ids=lambda case: case.name)
def test_no_rewrite_of_the_corpus_is_a_copy(case: Case) -> None:
    expected = case.name == "itself"
    assert is_copy(case.source, problem_named(case.problem).source) is expected


def test_the_same_program_in_disguise_is_no_copy() -> None:
    source = disguised(with_new(REFERENCE), seed=3)
    assert not is_copy(source, REFERENCE)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_null_test_is_a_copy_only_without_its_mark(problem: Problem) -> None:
    assert not is_copy(problem.null_source, problem.source)
    assert is_copy(problem.null_source.removesuffix(NULL_MARK), problem.source)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def",
        "x = 1",
        "ModelNew = Model",
        "ModelNew = ModelNew",
        "class ModelNew(ModelNew): pass",
    ],
)
def test_a_source_without_a_module_is_no_copy(source: str) -> None:
    assert not is_copy(source, REFERENCE)
    assert not is_copy(with_new(REFERENCE), source)


def test_a_source_that_is_too_deep_or_too_long_is_no_copy() -> None:
    deep = f"class ModelNew:\n    x = {'-' * 20_000}1\n"
    nested = "class ModelNew:\n    x = " + " + ".join(["1"] * 20_000) + "\n"
    for source in (deep, nested, with_new(REFERENCE) + "\n" + "# long\n" * 100_000):
        assert not is_copy(source, REFERENCE)
