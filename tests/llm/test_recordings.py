"""Tests that shipped recordings match their tags, as far as a CPU shows it without a compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudal1.extract.extract import extract
from cudal1.llm.replay import Recording, load_recordings
from cudal1.problem import DeviceClass, Problem
from cudal1.suite.loader import load_suite

RECORDINGS = load_recordings(Path(str(files("cudal1") / "llm" / "recordings")))
NEEDS_COMPILER = {"inline C++", "torch.compile"}


def named(*expected: str) -> Any:
    """Return a parameter for each recording with one of the tags that needs no compiler."""
    chosen = [r for r in RECORDINGS if r.expect in expected and r.technique not in NEEDS_COMPILER]
    return pytest.mark.parametrize(
        "recording", chosen, ids=[f"{r.level}-{r.name}-{i}" for i, r in enumerate(chosen)]
    )


@pytest.fixture(scope="module")
def suite() -> dict[tuple[int, int, str], Problem]:
    """Return the shipped problems at their CPU sizes."""
    return {(p.level, p.number, p.name): p for p in load_suite(DeviceClass.CPU)}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Return a function: outputs of reference and recording for the same weights and inputs."""
    import torch

    def outputs(problem: Problem, recording: Recording) -> Iterator[tuple[Any, Any]]:
        source = extract(recording.text).source
        assert source is not None
        reference = imported(problem.source, tmp_path / "reference.py")
        candidate = imported(source, tmp_path / "candidate.py")
        torch.manual_seed(0)
        model = reference.Model(*reference.get_init_inputs()).eval()
        model_new = candidate.ModelNew(*reference.get_init_inputs()).eval()
        model_new.load_state_dict(model.state_dict())
        with torch.no_grad():
            for _ in range(3):
                inputs = reference.get_inputs()
                copies = [x.clone() for x in inputs]
                found = model_new(*copies)
                assert recording.expect == "cheat" or all(map(torch.equal, inputs, copies))
                yield model(*inputs), found

    yield outputs
    sys.modules.pop("reference", None)
    sys.modules.pop("candidate", None)


def imported(source: str, path: Path) -> ModuleType:
    """Import a source as a module of its own file."""
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_every_recording_answers_a_shipped_problem(
    suite: dict[tuple[int, int, str], Problem],
) -> None:
    unknown = {(r.level, r.number, r.name) for r in RECORDINGS} - set(suite)
    assert not unknown


@named("correct")
def test_a_recording_tagged_correct_agrees_with_its_reference(
    recording: Recording, suite: dict[tuple[int, int, str], Problem], run: Any
) -> None:
    import torch

    problem = suite[recording.level, recording.number, recording.name]
    for wanted, found in run(problem, recording):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@named("wrong")
def test_a_recording_tagged_wrong_differs_from_its_reference(
    recording: Recording, suite: dict[tuple[int, int, str], Problem], run: Any
) -> None:
    import torch

    problem = suite[recording.level, recording.number, recording.name]
    for wanted, found in run(problem, recording):
        assert not torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@named("needs_cuda")
def test_a_recording_that_needs_cuda_fails_with_that_reason_without_it(
    recording: Recording, suite: dict[tuple[int, int, str], Problem], run: Any
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    problem = suite[recording.level, recording.number, recording.name]
    with pytest.raises((RuntimeError, ModuleNotFoundError), match=r"CUDA|triton"):
        list(run(problem, recording))
