"""An output is called wrong only where no honest program could have made it by rounding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudal1.harness.checks import output_check
from cudal1.harness.checks.output_check import OutputCheck
from cudal1.harness.checks.progress import Progress
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.protocol import EvalProtocol
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
