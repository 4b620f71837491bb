"""The judge holds the outputs of a real worker's bursts, or poison where nothing was computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from cudal1.harness.exchange.burst import run_own
from cudal1.harness.exchange.interval import Order
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem

NamedProblem = Callable[[str], Problem]


@pytest.mark.slow
def test_a_burst_without_calls_computes_nothing_and_the_next_one_is_normal(
    pool: Pool, named_problem: NamedProblem
) -> None:
    judge = pool._prepare(named_problem("linear"))
    runner, draws = judge._runner, [judge._oracle.draw(seed) for seed in (1, 2)]
    with judge._workers.reference(fresh=True) as reference:
        for order in (Order.EMPTY, Order.KEEP, Order.EMPTY, Order.CHAIN):
            burst = run_own(runner, reference, draws, judge._protocol, order)
            for slot, draw in enumerate(draws):
                (output,) = runner.output(burst, slot)
                if order is Order.EMPTY:
                    assert set(runner.raw(burst, slot).tolist()) == {burst.poison}
                else:
                    # two processes may add up in another order
                    torch.testing.assert_close(output, judge._oracle.outputs(draw)[0])
            runner.release(burst)


def test_a_candidate_is_never_asked_for_a_burst_without_calls(
    pool: Pool, named_problem: NamedProblem
) -> None:
    judge = pool._prepare(named_problem("linear"))
    with judge._workers.reference(fresh=True) as worker, pytest.raises(AssertionError):
        judge._runner.run(
            worker, [judge._oracle.draw(1)], order=Order.EMPTY, patience=Patience(1.0)
        )
