"""Tests that `apply` uses versions where they were proven, and nowhere else."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

import cudal1
from cudal1.errors import ConfigError, StoreError
from cudal1.protocol import Mode
from tests.applying.conftest import GATED, NORM, SIZE, Keep, calls_of

ROOT = Path(__file__).parents[2]
SHAPE = (2, 4, SIZE)


def called(source: str, run: Callable[[], Any]) -> int:
    """Return the number of a version's calls meanwhile."""
    before = len(calls_of(source))
    run()
    return len(calls_of(source)) - before


@torch.no_grad()
def test_proven_versions_compute_the_same_outputs(keep: Keep, block: nn.Module) -> None:
    folder = keep().parent
    keep(GATED, name="Gated")
    x = torch.randn(SHAPE)
    expected = block(x)
    applied = cudal1.apply(block, folder)
    assert set(applied.swapped) == {"norm", "gated"}
    assert applied.refused == ()
    first, second = block(x), block(x)
    assert torch.equal(first, expected)  # the original's, beside which the version ran
    torch.testing.assert_close(second, expected)
    assert calls_of(NORM) == calls_of(GATED) == [SHAPE, SHAPE]


@torch.no_grad()
def test_later_calls_run_the_version_alone(
    keep: Keep, block: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudal1.apply(block, keep())
    block.norm(torch.randn(SHAPE))
    monkeypatch.setattr(torch, "rsqrt", None)  # the original's
    assert block.norm(torch.randn(SHAPE)).shape == SHAPE
    assert called(NORM, lambda: block.norm(torch.randn(SHAPE))) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b, x: (b, x[:, :3]), "called with float32[2, 3, 16]; proven for"),
        (lambda b, x: (b.double(), x.double()), "called with float64[2, 4, 16]; proven for"),
        (lambda b, x: (b, x.transpose(0, 1).contiguous().transpose(0, 1)), "not contiguous"),
        (lambda b, x: (b.train(), x), "runs in training mode"),
    ],
    ids=["shape", "type", "strides", "mode"],
)
def test_calls_that_were_not_proven_run_the_original(
    change: Any, said: str, keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    block.norm(x)
    block.norm(x)
    block, x = change(block, x)
    expected = type(block.norm).forward(block.norm, x)
    assert called(NORM, lambda: block.norm(x)) == 0
    assert torch.equal(block.norm(x), expected)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert said in lines[0]


def test_gradients_run_the_original(
    keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    with torch.no_grad():
        block.norm(x)
    assert called(NORM, lambda: block.norm(x).sum().backward()) == 0
    assert block.norm.weight.grad is not None
    block.requires_grad_(False)
    assert called(NORM, lambda: block.norm(x.requires_grad_())) == 0
    assert called(NORM, lambda: block.norm(x.detach())) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Norm: the original runs: gradients are wanted; use torch.no_grad() where they are not"
    ]


@torch.no_grad()
def test_autocast_and_keywords_run_the_original(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    block.norm(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert called(NORM, lambda: block.norm(x)) == 0
    assert called(NORM, lambda: block.norm(x=x)) == 0
    assert called(NORM, lambda: block.norm(x)) == 1


TWO = """from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def forward(self, x, y, times=2):
        CALLS.append(times)
        return x * y * times
"""


@torch.no_grad()
def test_arguments_that_are_no_tensors_must_be_those_that_were_proven(
    keep: Keep, program: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = program.Scaled().eval()
    tensor = f"float32{[*SHAPE]}"
    record = keep(TWO, name="Scaled", size="", proof_changes={"inputs": (tensor, tensor, "3")})
    applied = cudal1.apply(module, record)
    assert applied.refused == ()
    x, y = torch.randn(2, *SHAPE)
    for _ in range(2):
        assert torch.equal(module(x, y, 3), x * y * 3)
        assert torch.equal(module(x, y, 3.0), x * y * 3)
        assert torch.equal(module(x, y, True), x * y)
        assert torch.equal(module(x, y), x * y * 2)
        assert torch.equal(module(x, x, 3), x * x * 3)  # the guard takes no tensor twice
        assert torch.equal(module(x, y, [3]), x * y * 3)
    assert calls_of(TWO) == [3, 3, 3]  # once beside the original for x and x
    assert "an argument is a list" in caplog.text


@torch.no_grad()
def test_inference_mode_and_transforms_are_kinds_of_their_own(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    block.norm(x)
    with torch.inference_mode():
        expected = type(block.norm).forward(block.norm, x)
        for _ in range(3):
            torch.testing.assert_close(block.norm(x), expected)
    many = x.expand(3, *SHAPE)
    assert called(NORM, lambda: torch.vmap(block.norm)(many)) == 0


@torch.no_grad()
def test_a_compiler_sees_the_original(keep: Keep, block: nn.Module) -> None:
    x = torch.randn(SHAPE)
    expected = block(x)
    cudal1.apply(block, keep())
    compiled = torch.compile(block, backend="eager")
    assert called(NORM, lambda: compiled(x)) == 0
    assert torch.equal(compiled(x), expected)


@torch.no_grad()
def test_the_version_follows_every_change_of_the_weights(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    block.norm(x)

    def follows() -> None:
        expected = type(block.norm).forward(block.norm, x)
        assert called(NORM, lambda: torch.testing.assert_close(block.norm(x), expected)) == 1

    state = {name: tensor + 1 for name, tensor in block.state_dict().items()}
    block.load_state_dict(state)
    follows()
    block.load_state_dict({name: tensor + 1 for name, tensor in state.items()}, assign=True)
    follows()
    block.norm.weight = nn.Parameter(torch.rand(SIZE))
    follows()
    block.norm.weight.data = torch.rand(SIZE)
    follows()
    block.to(torch.float64).to(torch.float32)
    follows()


@torch.no_grad()
def test_a_replaced_or_hooked_submodule_runs_the_original(
    keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    cudal1.apply(block, keep(GATED, name="Gated"))
    x = torch.randn(SHAPE)
    block.gated(x)
    assert called(GATED, lambda: block.gated(x)) == 1
    seen: list[str] = []
    handle = block.gated.up.register_forward_hook(lambda *_: seen.append("hook"))
    assert called(GATED, lambda: block.gated(x)) == 0
    assert seen == ["hook"]
    handle.remove()
    assert called(GATED, lambda: block.gated(x)) == 1
    block.gated.up = nn.Linear(SIZE, SIZE)
    assert called(GATED, lambda: block.gated(x)) == 0
    assert ["hooks" in r.getMessage() or "replaced" in r.getMessage() for r in caplog.records] == [
        True,
        True,
    ]


@torch.no_grad()
def test_the_modules_own_hooks_and_state_stay(keep: Keep, block: nn.Module) -> None:
    names = list(block.state_dict())
    modules = [name for name, _ in block.named_modules()]
    cudal1.apply(block, keep())
    assert list(block.state_dict()) == names
    assert [name for name, _ in block.named_modules()] == modules
    seen: list[str] = []
    block.norm.register_forward_pre_hook(lambda *_: seen.append("before"))
    block.norm.register_forward_hook(lambda *_: seen.append("after"))
    block.norm(torch.randn(SHAPE))
    assert called(NORM, lambda: block.norm(torch.randn(SHAPE))) == 1
    assert seen == ["before", "after"] * 2


@torch.no_grad()
def test_a_deep_copy_has_weights_and_versions_of_its_own(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep())
    x = torch.randn(SHAPE)
    block.norm(x)
    copied = copy.deepcopy(block)
    copied.norm.weight.zero_()
    assert called(NORM, lambda: copied.norm(x)) == 1  # its first: both run
    assert called(NORM, lambda: copied.norm(x)) == 1
    assert copied.norm(x).abs().max() == 0
    assert block.norm(x).abs().max() > 0


@torch.no_grad()
def test_a_copy_of_a_changed_module_runs_the_original(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep(GATED, name="Gated"))
    block.gated.up = nn.Sequential(nn.Linear(SIZE, SIZE, bias=False))
    copied = copy.deepcopy(block)
    x = torch.randn(SHAPE)
    assert called(GATED, lambda: (copied.gated(x), copied.gated(x))) == 0


def test_pickling_is_refused_in_one_line_and_works_after_unapply(
    keep: Keep, block: nn.Module
) -> None:
    cudal1.apply(block, keep())
    with pytest.raises(pickle.PicklingError, match=r"call cudal1\.unapply\(model\) first") as error:
        torch.save(block, io.BytesIO())
    assert "\n" not in str(error.value)
    cudal1.unapply(block)
    pickle.loads(pickle.dumps(block))


@torch.no_grad()
def test_a_context_ends_with_the_original(keep: Keep, block: nn.Module) -> None:
    before = dict(vars(block.norm))
    x = torch.randn(SHAPE)
    with cudal1.apply(block, keep()) as applied:
        assert applied.swapped == {"norm": (str(keep().with_name("norm.faster.py")),)}
        block.norm(x)
        assert called(NORM, lambda: block.norm(x)) == 1
    assert vars(block.norm) == before
    assert called(NORM, lambda: block.norm(x)) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"properties": {"follows_weights": False}}, "does not follow weights that are loaded"),
        ({"properties": {"follows_weights": None}}, "was not seen to follow weights"),
        ({"properties": {"fresh_outputs": False}}, "an output is overwritten by the next call"),
        ({"properties": {"leaves_inputs": False}}, "writes to its inputs"),
        ({"properties": {"leaves_inputs": None}}, "not known whether it leaves its inputs alone"),
        ({"proof_changes": {"invariants": ("input 0: values in {0, 1}",)}}, "values in {0, 1}"),
        ({"replaces_source_id": None}, "does not say which source"),
        ({"replaces_source_id": "0" * 16}, "its source was changed since"),
        ({"candidate_source_id": "0" * 16}, "of another source"),
        ({"replaces": None}, "replaces no class"),
        ({"size": 8}, "weight is float32[16], not float32[8]"),
        ({"source": NORM.replace("self.weight", "self.scale")}, "weight"),
        ({"source": "raise ValueError(1)"}, "raises when it is run (ValueError: 1)"),
        ({"source": NORM.replace("ModelNew", "Other")}, "has no ModelNew"),
    ],
)
def test_a_version_that_is_not_proven_for_a_module_is_refused(
    given: dict[str, Any], said: str, keep: Keep, block: nn.Module
) -> None:
    if "candidate_source_id" in given:
        with pytest.raises(ValueError, match=said):
            keep(**given)
        return
    applied = cudal1.apply(block, keep(**given))
    assert applied.swapped == {}
    assert any(said in line for line in applied.refused), applied.refused
    assert not any("\n" in line for line in applied.refused)
    assert "forward" not in vars(block.norm)


def test_an_edited_file_is_never_run(keep: Keep, block: nn.Module, tmp_path: Path) -> None:
    path = keep()
    mark = tmp_path / "ran"
    edited = f"open({str(mark)!r}, 'w')\n"
    for name, said in (("norm.faster.py", "edited since"), ("norm_0.py", "changed since")):
        file = path.with_name(name)
        whole = file.read_text()
        file.write_text(edited + whole)
        applied = cudal1.apply(block, path)
        assert any(said in line for line in applied.refused)
        assert not mark.exists()
        file.write_text(whole)


def test_a_module_that_is_configured_otherwise_is_left_alone(keep: Keep, program: Any) -> None:
    other = program.Norm(SIZE, eps=1e-5).eval()
    applied = cudal1.apply(other, keep())
    assert applied.swapped == {}
    assert "eps is 1e-05, not 1e-06" in applied.refused[0]


@torch.no_grad()
def test_a_version_that_computes_something_else_here_is_given_up(
    keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = NORM.replace("1e-6)", "1e-6) + 0.01")
    cudal1.apply(block, keep(wrong))
    x = torch.randn(SHAPE)
    expected = type(block.norm).forward(block.norm, x)
    assert torch.equal(block.norm(x), expected)
    assert called(wrong, lambda: torch.equal(block.norm(x), expected)) == 0
    assert "its first output differs from the original's" in caplog.text


@torch.no_grad()
def test_a_version_that_raises_is_given_up(
    keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    raising = NORM.replace("        return", "        assert len(CALLS) < 3\n        return")
    cudal1.apply(block, keep(raising))
    x = torch.randn(SHAPE)
    expected = type(block.norm).forward(block.norm, x)
    for _ in range(5):
        torch.testing.assert_close(block.norm(x), expected)
    assert len(calls_of(raising)) == 3
    assert "the version raised (AssertionError)" in caplog.text


@torch.no_grad()
def test_a_proof_in_training_mode_holds_in_training_mode(keep: Keep, block: nn.Module) -> None:
    cudal1.apply(block, keep(mode=Mode.TRAIN))
    x = torch.randn(SHAPE)
    block.norm(x)
    assert called(NORM, lambda: block.norm(x)) == 0
    block.train().norm(x)
    assert called(NORM, lambda: block.norm(x)) == 1


def test_random_numbers_of_the_program_stay_as_they_were(keep: Keep, block: nn.Module) -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(3), random.random()
    torch.manual_seed(3)
    random.seed(3)
    cudal1.apply(block, keep())
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]


def test_other_objects_and_folders_without_records_are_refused(
    block: nn.Module, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"int is no torch\.nn\.Module"):
        cudal1.apply(cast("nn.Module", 3), tmp_path)
    with pytest.raises(StoreError, match=r"holds no \*\.faster\.json"):
        cudal1.apply(block, tmp_path)
    (tmp_path / "x.faster.json").write_text('{"version": 3}')
    with pytest.raises(StoreError, match=r"x\.faster\.json: no record of a kept version"):
        cudal1.apply(block, tmp_path)


def test_the_log_says_how_many_modules_were_swapped(
    keep: Keep, block: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cudal1.apply"):
        cudal1.apply(block, keep())
    assert caplog.messages == ["1 modules may call proven versions"]


def test_importing_cudal1_imports_no_library_and_keeps_the_environment() -> None:
    code = (
        "import os, sys; before = dict(os.environ); import cudal1; "
        "assert dict(os.environ) == before; "
        "assert not {'torch', 'pydantic', 'numpy'} & set(sys.modules); "
        "assert callable(cudal1.apply); assert 'cudal1.harness' not in sys.modules; "
        "assert dict(os.environ) == before"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "TORCH_HOME": "x", "MLFLOW_RUN_ID": "y"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
