"""A worker cannot tell bursts apart before they are over, and the judge remembers all of them."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.exchange.interval import Order
from cudal1.harness.timing import quads as module
from cudal1.harness.timing import rule
from cudal1.harness.timing.quads import Quads
from cudal1.measurement import Role
from cudal1.protocol import EvalProtocol

COUNT, NUM_QUADS = 8, 200
FAMILIES = ["own", "large", "small", "ties"]


@dataclass(frozen=True)
class Played:
    """A burst, or a draw of inputs, as the judge's clock saw it."""

    role: Role | None
    is_decoy: bool = False


class Stage:
    """A stand-in for the burst runner and the workers; nothing takes any time."""

    def __init__(
        self,
        protocol: EvalProtocol,
        monkeypatch: pytest.MonkeyPatch,
        order: Order = Order.CHAIN,
        *,
        session: int = 0,
    ) -> None:
        self.events: list[Played] = []
        self.compared: Counter[str] = Counter()
        self.us = {Role.REFERENCE: 100.0, Role.CANDIDATE: 100.0}
        rng = random.Random(3)
        self._order, self._others = order, itertools.cycle(FAMILIES[1:])
        runner: Any = SimpleNamespace(
            timed_order=order, release=lambda _: None, layout=SimpleNamespace(num_slots=64)
        )
        examination: Any = SimpleNamespace(
            rng=rng,
            progress=SimpleNamespace(samples=[]),
            fresh=self._fresh,
            compare=self._compare,
            mixed=self._mixed,
            num_calls=lambda *, times=1: times * COUNT,
            order=order,
            is_drop_in=False,
            give_weights=lambda *_: None,
            history=[],
            run=lambda _worker, draws, _order=None: self._burst(Role.CANDIDATE, draws),
        )
        oracle: Any = SimpleNamespace(families=FAMILIES, draw=self._draw, can_change_weights=False)
        monkeypatch.setattr(
            module,
            "run_own",
            lambda _runner, _worker, draws, *_: self._burst(Role.REFERENCE, draws),
        )
        self.quads = Quads(
            examination, runner, oracle, protocol, session=session, time_empty=lambda _: 0.0
        )

    def quad(self, count: int = COUNT) -> list[Played]:
        """Run one more quad and return what it consists of."""
        del self.events[:]
        worker: Any = None
        self.quads._quad(worker, worker, self.order(), count, 0.0, 0)
        return list(self.events)

    def order(self) -> tuple[Role, ...]:
        """Return the order of the bursts of a quad."""
        return rule.draw_order(self.quads._rng, self.quads._protocol)

    def _draw(self, _seed: int, family: str = "own") -> Any:
        self.events.append(Played(None))
        return SimpleNamespace(family=family)

    def _fresh(self, count: int) -> list[Any]:
        return [self._draw(0) for _ in range(count)]

    def _mixed(self, count: int, number: int) -> list[Any]:
        others = [self._draw(0, next(self._others)) for _ in range(number)]
        return others + self._fresh(count - number)

    def _burst(self, role: Role, draws: list[Any]) -> Any:
        self.events.append(Played(role, any(draw.family != "own" for draw in draws)))
        us = self.us[role] * len(draws)
        return SimpleNamespace(
            order=self._order,
            draws=draws,
            elapsed_us=us,
            worked_us=2 * us,
            computed_us=us,
            outside_us=0.0,
            is_disturbed=False,
        )

    def _compare(self, _: Any, burst: Any, *, exact: bool, reference: Any) -> None:
        assert burst.draws is reference.draws
        self.compared.update(draw.family for draw in burst.draws)


@pytest.fixture
def stage(quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(quick, monkeypatch)


def _before(played: list[Played]) -> list[tuple[int, bool]]:
    """Return, for each burst of the candidate but the first, what came before it.

    That is the number of the reference's bursts since the candidate's last one, and whether this
    burst is a decoy.
    """
    found: list[tuple[int, bool]] = []
    waited, is_first = 0, True
    for each in played:
        if each.role is Role.REFERENCE:
            waited += 1
        elif each.role is Role.CANDIDATE:
            if not is_first:
                found.append((waited, each.is_decoy))
            waited, is_first = 0, False
    return found


def test_inputs_are_drawn_before_the_first_burst_of_a_quad(stage: Stage) -> None:
    for _ in range(NUM_QUADS):
        drawn = [each.role is None for each in stage.quad()]
        assert drawn == sorted(drawn, reverse=True)


def test_inputs_drawn_for_a_decoy_do_not_tell_if_it_comes_in_this_quad(stage: Stage) -> None:
    seen: set[tuple[int, bool]] = set()
    for _ in range(NUM_QUADS):
        played = stage.quad()
        seen.add((sum(each.role is None for each in played), any(e.is_decoy for e in played)))
    assert len(seen) == 4


def test_a_decoy_may_follow_as_soon_or_as_late_as_any_timed_burst(stage: Stage) -> None:
    waits: dict[bool, set[int]] = {True: set(), False: set()}
    for _ in range(NUM_QUADS):
        for waited, is_decoy in _before(stage.quad()):
            waits[is_decoy].add(waited)
    assert waits[False] <= waits[True]


def test_reference_and_candidate_get_the_same_bursts(stage: Stage) -> None:
    for _ in range(NUM_QUADS):
        played = [each for each in stage.quad() if each.role]
        mine, theirs = (
            [each.is_decoy for each in played if each.role is role] for role in module.ROLES
        )
        assert sorted(mine) == sorted(theirs)
        assert len(mine) == 2 + any(mine)


def test_a_gain_is_measured_until_inputs_of_every_family_have_come(stage: Stage) -> None:
    gain, none = [math.log(2.0)] * 12, [0.0] * 12
    assert not stage.quads._is_done(gain, 0.0)
    assert stage.quads._is_done(none, 0.0)
    while not stage.quads._is_done(gain, 0.0):
        stage.quad()
    for family in FAMILIES[1:]:
        assert stage.compared[family] >= module.ENOUGH_INPUTS


def test_a_confirmation_waits_for_one_input_of_every_family(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, gain = Stage(quick, monkeypatch, session=1), [math.log(2.0)] * 12
    assert not stage.quads._is_done(gain, 0.0)
    while not stage.quads._is_done(gain, 0.0):
        stage.quad(count=1)
    assert min(stage.compared[family] for family in FAMILIES[1:]) == 1


def test_bursts_without_room_for_other_families_have_up_to_two_decoys(stage: Stage) -> None:
    found: Counter[int] = Counter()
    for _ in range(NUM_QUADS):
        played = stage.quad(count=1)
        decoys = [each for each in played if each.role and each.is_decoy]
        assert [each.role for each in decoys].count(Role.CANDIDATE) * 2 == len(decoys)
        found[len(decoys) // 2] += 1
    assert set(found) == {0, 1, 2}
    assert found[2] > found[0]


@pytest.mark.parametrize("first_us", [50.0, 200.0])
def test_quads_of_the_last_length_decide_what_is_believed(stage: Stage, first_us: float) -> None:
    worker: Any = None
    for count, candidate_us in ((COUNT, first_us), (3 * COUNT, 90.0)):
        stage.us[Role.CANDIDATE] = candidate_us
        for number in range(3):
            stage.quads._quad(worker, worker, stage.order(), count, 0.0, number)
    assert stage.quads.last_speedup() == pytest.approx(100.0 / 90.0)


def test_bursts_that_warm_up_do_not_count(stage: Stage) -> None:
    worker: Any = None
    stage.quads.both(worker, worker, stage.quads._examination.fresh(COUNT))
    del stage.events[:]
    stage.quads.measure(worker, worker)
    assert len(stage.quads.burst_times) == sum(each.role is Role.CANDIDATE for each in stage.events)


# --- on a GPU ------------------------------------------------------------------------------------


def _bursts_of_each(stage: Stage) -> list[int]:
    worker: Any = None
    stage.quads.measure(worker, worker)
    number = Counter(sample.quad for sample in stage.quads._samples)
    return [number[quad] for quad in sorted(number)]


@pytest.mark.parametrize(("candidate_us", "in_pairs"), [(50.0, True), (95.0, False)])
def test_a_clear_gain_on_a_gpu_is_measured_in_pairs_from_the_second_quad_on(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch, candidate_us: float, in_pairs: bool
) -> None:
    stage = Stage(quick, monkeypatch, Order.KEEP)
    stage.us[Role.CANDIDATE] = candidate_us
    first, *others = _bursts_of_each(stage)
    assert first == 4
    assert set(others) == {2 if in_pairs else 4}
    assert 1 + len(others) >= quick.min_quads


def test_a_clear_gain_on_a_cpu_is_measured_in_quads(stage: Stage) -> None:
    stage.us[Role.CANDIDATE] = 50.0
    assert set(_bursts_of_each(stage)) == {4}


@pytest.mark.parametrize("order", [Order.KEEP, Order.CHAIN])
def test_a_clear_loss_costs_no_more_than_five_quads(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    stage = Stage(quick, monkeypatch, order)
    stage.us[Role.CANDIDATE] = 300.0
    first, *others = _bursts_of_each(stage)
    assert (first, set(others)) == (4, {2})
    assert first + sum(others) <= 5 * 4


def test_all_bursts_of_a_disturbed_quad_count_by_what_was_computed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = stage._burst, iter([False, False, True, False])

    def burst(role: Role, draws: list[Any]) -> Any:
        found = real(role, draws)
        found.is_disturbed = next(left)
        found.computed_us = 7.0 * len(draws)
        return found

    monkeypatch.setattr(stage, "_burst", burst)
    monkeypatch.setattr(module, "DECOYS", 0.0)
    stage.quad()
    assert [sample.net_us for sample in stage.quads._samples] == [7.0] * 4


def test_a_claim_to_bear_out_is_measured_until_it_is_borne_out(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker: Any = None
    lengths: list[int] = []
    for expected in (2.0, 3.0, None):
        stage = Stage(quick, monkeypatch, Order.KEEP)
        stage.us[Role.CANDIDATE] = 50.0
        lengths.append(len(stage.quads.measure(worker, worker, expected=expected)))
    assert lengths[0] == rule.CONFIRMING
    assert lengths[1] == lengths[2] >= quick.min_quads


@pytest.mark.parametrize(
    ("count", "coarse"), [(0.2, 1), (7.0, 7), (8.1, 10), (23.0, 24), (51.9, 56), (64.0, 64)]
)
def test_numbers_of_calls_are_few_and_not_too_small(count: float, coarse: int) -> None:
    assert module._coarse(count) == coarse


@pytest.mark.parametrize(("fit", "longer"), [(24, 24), (9, 9), (2, 8)])
def test_undecided_bursts_become_as_long_as_three_target_times(
    fit: int, longer: int, quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(quick, monkeypatch, Order.KEEP)
    monkeypatch.setattr(stage.quads._examination, "num_calls", lambda *, times: fit)
    monkeypatch.setattr(rule, "is_undecided", lambda *_: True)
    assert stage.quads._replanned(COUNT, []) == longer
