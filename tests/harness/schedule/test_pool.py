"""A pool judges with earlier findings about a reference and measures all times itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from cudal1.candidate import Candidate
from cudal1.harness.admission.known_references import Circumstances, KnownReferences
from cudal1.harness.device.device import find_device
from cudal1.harness.oracle import oracle as oracles
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

pytestmark = pytest.mark.slow

OpenPool = Callable[..., AbstractContextManager[Pool]]


@pytest.fixture
def problem(named_problem: Callable[[str], Problem]) -> Problem:
    return named_problem("wasteful_linear")


@pytest.fixture
def known(tmp_path: Path, problem: Problem, quick: EvalProtocol) -> KnownReferences:
    """The findings of a trial of the problem; this process's memory holds none of them."""
    kept = KnownReferences(tmp_path / "references")
    oracles._known.clear()
    oracle = Oracle(problem, weight_seed=quick.seed, device=torch.device("cpu"))
    kept.keep(Circumstances.of(problem, quick, find_device(DeviceClass.CPU)), oracle.traits)
    oracles._known.clear()
    return kept


def test_a_known_reference_is_judged_with_the_earlier_findings(
    open_pool: OpenPool, known: KnownReferences, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Oracle, "_examined", None)
    null = Candidate(problem_id=problem.id, source=problem.null_source)
    with open_pool(known=known) as pool:
        assert pool.judge(problem, null, timing=False).verdict.status is Status.CORRECT
        assert pool.reference_us(problem) > 0


def test_a_reference_known_under_another_protocol_is_examined(
    open_pool: OpenPool,
    known: KnownReferences,
    problem: Problem,
    quick: EvalProtocol,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examined: list[str] = []
    examine = Oracle._examined
    monkeypatch.setattr(
        Oracle, "_examined", lambda self: (examined.append(self.problem.id), examine(self))[1]
    )
    other = quick.model_copy(update={"seed": quick.seed + 1})
    with open_pool(other, known=known) as pool:
        pool.reference_us(problem)
    assert examined == [problem.id]
