"""An output is called wrong only where no honest program could have made it by rounding."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudal1.harness.checks import output_check
from cudal1.harness.checks.output_check import OutputCheck
from cudal1.harness.checks.progress import Progress
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.protocol import EvalProtocol, PrecisionClass
from tests.harness.oracle.test_oracle import STEEP, TERMS, added_backwards, oracle_of

LUCKY_SEED = 3595
"""Seed of inputs on which the reference is nearer to float64 than honest programs mostly are."""


def _compare(
    oracle: Oracle, draw: Draw, output: torch.Tensor, protocol: EvalProtocol, *, exact: bool
) -> Progress:
    """Compare one output, as if a burst of one call had brought it; return the progress."""
    burst: Any = SimpleNamespace(draws=(draw,), inputs_changed=False, is_refused=False)
    runner: Any = SimpleNamespace(
        output=lambda _burst, _slot: [output], release=lambda _burst: None
    )
    progress = Progress()
    OutputCheck(oracle, runner, protocol, progress).compare(burst, exact=exact, reference=None)
    return progress


@pytest.mark.parametrize("exact", [False, True])
def test_an_honest_output_passes_on_an_input_where_the_reference_was_lucky(
    quick: EvalProtocol, exact: bool
) -> None:
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(LUCKY_SEED)
    honest = added_backwards(draw.inputs[0])
    progress = _compare(oracle, draw, honest, quick, exact=exact)
    assert progress.compared.num_inputs == 1


@pytest.mark.parametrize("exact", [False, True])
def test_an_output_in_lower_precision_fails_on_such_an_input(
    quick: EvalProtocol, exact: bool
) -> None:
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(LUCKY_SEED)
    coarse = added_backwards(draw.inputs[0]) * (1 + 2**-10)
    with pytest.raises(Failure, match="correct only in the looser precision class tf32"):
        _compare(oracle, draw, coarse, quick, exact=exact)


def test_large_answers_are_remembered_one_at_a_time(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = oracle_of(STEEP, TERMS)
    runner: Any = SimpleNamespace()
    check = OutputCheck(oracle, runner, quick, Progress())
    answers = [torch.full((4,), float(number)) for number in range(6)]
    for answer in answers:
        check._remember([answer])
    assert [float(kept[0][0]) for kept in check._earlier] == [2.0, 3.0, 4.0, 5.0]
    monkeypatch.setattr(output_check, "MAX_REMEMBERED_BYTES", answers[0].nbytes)
    check._remember([answers[0]])
    assert [float(kept[0][0]) for kept in check._earlier] == [0.0]


def test_answers_are_widened_for_so_many_outputs_of_a_candidate_and_no_more(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_check, "MAX_WIDENED", 0)
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(LUCKY_SEED)
    with pytest.raises(Failure, match="correct only in the looser precision class tf32"):
        _compare(oracle, draw, added_backwards(draw.inputs[0]), quick, exact=True)


def test_an_output_that_needed_a_wider_answer_is_counted(quick: EvalProtocol) -> None:
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(LUCKY_SEED)
    progress = _compare(oracle, draw, added_backwards(draw.inputs[0]), quick, exact=True)
    assert progress.num_widened == 1


# --- inputs that are hard for every program -------------------------------------------------------

SPARSE = "return torch.relu(x.sum(1) - 10.0)"
"""A reference with outputs that are all 0 in most calls, and else but for one element of 128."""
TEN = "torch.randn(128, 10)"
"""Its inputs."""


def added_halves(x: torch.Tensor) -> torch.Tensor:
    """Return what an honest candidate gives that rounds what it adds."""
    return torch.relu(x.bfloat16().float().sum(1) - 10.0)


@pytest.fixture
def half(quick: EvalProtocol) -> EvalProtocol:
    """Return settings for the class half."""
    return quick.model_copy(update={"precision": PrecisionClass.HALF})


def _first_failure(
    compute: Callable[[torch.Tensor], torch.Tensor], half: EvalProtocol, progress: Progress
) -> int | None:
    """Return the place of the first of many outputs that fails; None where all pass."""
    oracle = oracle_of(SPARSE, TEN, precision=PrecisionClass.HALF)
    runner: Any = SimpleNamespace()
    check = OutputCheck(oracle, runner, half, progress)
    for place in range(400):
        draw = oracle.draw(1000 + place)
        _, compared = check._held_to(draw, [compute(draw.inputs[0])], exact=place < 16)
        if check._failing(compared):
            return place
        progress.compared.num_inputs += bool(compared)
    return None


def test_an_honest_output_passes_on_an_input_that_is_hard_for_every_program(
    half: EvalProtocol,
) -> None:
    progress = Progress()
    assert _first_failure(added_halves, half, progress) is None
    assert progress.num_hard > 0, "none of the inputs was hard"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.zeros(128),
        lambda x: 1.05 * added_halves(x),
        lambda x: torch.relu(x.sum(1) - 9.9),
        lambda x: torch.relu(x[:, :9].sum(1) - 10.0),
    ],
)
def test_a_wrong_output_fails_beside_inputs_that_are_hard(
    half: EvalProtocol, compute: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert _first_failure(compute, half, Progress()) is not None


def test_few_inputs_may_be_hard(half: EvalProtocol, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference for which most are is held to its answers."""
    monkeypatch.setattr(Oracle, "is_hard", lambda *_: True)
    progress = Progress()
    assert _first_failure(lambda x: torch.ones(128), half, progress) == 1
    assert (progress.num_hard, progress.compared.num_inputs) == (1, 0)
    later = Progress()
    later.compared.num_inputs = 3 * output_check.INPUTS_FOR_A_HARD_ONE
    assert _first_failure(lambda x: torch.ones(128), half, later) == later.num_hard == 4


def test_inputs_of_another_family_are_none_of_these(
    half: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Oracle, "is_hard", lambda *_: True)
    oracle = oracle_of("return torch.tanh(x)", precision=PrecisionClass.HALF)
    draw = oracle.draw(1, oracle.families[1])
    runner: Any = SimpleNamespace()
    check = OutputCheck(oracle, runner, half, Progress())
    _, compared = check._held_to(draw, [-torch.tanh(draw.inputs[0])], exact=True)
    assert check._failing(compared) == [0]
