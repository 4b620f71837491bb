"""Tests that near-duplicates of KernelBench are held out together, and of the published list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Split
from cudal1.suite import kernelbench
from cudal1.suite.kernelbench_split import NUM_HELDOUT, choose, families, heldout

MODULE = """import torch
import torch.nn as nn

size = 4096
batch_size = 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.rand(batch_size, size)]


def get_init_inputs():
    return []
"""


def module(forward: str, init: str = "pass") -> str:
    return MODULE.format(forward=f"return {forward}", init=init)


def layer(cls: str) -> str:
    return module("self.layer(x)", f"self.layer = nn.{cls}(3, 4, 5)")


def groups(**sources: str) -> list[list[str]]:
    """Return the families of problems of level 1, without numbers."""
    named = {f"level1/{i}_{name}": text for i, (name, text) in enumerate(sources.items(), start=1)}
    return [[name.partition("_")[2] for name in group] for group in families(named)]


def test_an_operator_in_several_dimensions_is_one_family() -> None:
    found = groups(a=layer("Conv1d"), b=layer("ConvTranspose2d"), c=layer("Conv3d"))
    assert found == [["a", "c"], ["b"]]


def test_spellings_of_a_product_are_one_family() -> None:
    spelled = ("torch.matmul(x, x)", "torch.bmm(x, x)", "x @ x", "torch.einsum('ij,jk->ik', x, x)")
    found = groups(**{f"m{i}": module(text) for i, text in enumerate(spelled)})
    assert len(found) == 1


def test_directions_of_a_reduction_are_one_family() -> None:
    assert groups(a=module("torch.max(x, 1)[0]"), b=module("torch.amin(x, 1)")) == [["a", "b"]]


def test_other_operators_are_other_families() -> None:
    assert groups(a=module("torch.tanh(x)"), b=module("torch.exp(x)")) == [["a"], ["b"]]


def test_constants_and_layout_tell_no_operators_apart() -> None:
    other = module("torch.tanh(x.view(-1)).contiguous()").replace("4096", "512")
    assert groups(a=module("torch.tanh(x)"), b=other) == [["a", "b"]]


def test_a_formula_named_after_an_operator_is_with_it() -> None:
    written = module("0.5 * x * (1 + torch.tanh(x + 0.044 * torch.pow(x, 3)))")
    assert len(groups(GELU_=module("torch.nn.functional.gelu(x)"), MinGPTNewGelu=written)) == 1


def test_architectures_with_a_word_in_common_are_one_family() -> None:
    names = ("VGG16", "VGG19", "MLP", "DeepNarrowMLP", "MinGPTBlock", "MiniGPTBlock", "UNetBlock")
    found = families({f"level3/{i}_{name}": "" for i, name in enumerate(names)})
    assert [len(group) for group in found] == [2, 2, 2, 1]


def test_a_family_is_held_out_whole_or_not_at_all() -> None:
    calls = [f"torch.op{i % 7}(x)" for i in range(30)]
    sources = {f"level1/{i}_p{i}": module(call) for i, call in enumerate(calls)}
    for seed in range(5):
        chosen = set(choose(sources, seed=seed, counts={1: 16}))
        assert chosen
        assert all(chosen >= set(g) or chosen.isdisjoint(g) for g in families(sources))


def test_the_published_list_has_its_number_of_each_level() -> None:
    found = Counter(int(name[len("level")]) for name in heldout())
    assert found == Counter(NUM_HELDOUT)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "22_Tanh.py").write_text(module("torch.relu(x)"))
    (folder / "33_BatchNorm.py").write_text(module("torch.tanh(x)"))
    return tmp_path


def test_listed_problems_are_held_out_in_their_own_sizes(checkout: Path) -> None:
    held, trained = kernelbench.load(
        checkout,
        revision=None,
        sizes=None,
        device_class=DeviceClass.CPU,
        heldout=heldout(),
        largest_trained=256,
    )
    assert (held.split, trained.split) == (Split.HELDOUT, Split.TRAIN)
    assert "size = 4096" in held.source
    assert "size = 256\nbatch_size = 256" in trained.source


def test_a_sizes_file_wins_over_the_bound(checkout: Path, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.yaml"
    sizes.write_text("cpu: {level1/33_BatchNorm: {size: 512}}")
    _, trained = kernelbench.load(
        checkout, revision=None, sizes=sizes, device_class=DeviceClass.CPU, largest_trained=256
    )
    assert "size = 512\nbatch_size = 256" in trained.source


def test_a_suite_without_any_listed_problem_is_refused(checkout: Path) -> None:
    (checkout / "KernelBench" / "level1" / "22_Tanh.py").unlink()
    with pytest.raises(SuiteError, match="has no problem that is to be held out") as caught:
        kernelbench.load(
            checkout, revision=None, sizes=None, device_class=DeviceClass.CPU, heldout=heldout()
        )
    assert "set problems.split to none" in str(caught.value)
