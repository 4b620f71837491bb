"""A claim is believed only as far as nothing but faster calls can explain it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.exchange.interval import Order
from cudal1.harness.exchange.outside import WARM, WORK_SLACK_NS
from cudal1.harness.timing.credible import (
    ENOUGH_PAIRS,
    GAP_US,
    HOARD_BYTES,
    LAUNCH_US,
    LEAST_AFTER_HOARD,
    MORE_LOOKS,
    MOST_LOOP_US,
    ONCE_PAIRS,
    ONCE_US,
    OUTPUT_US,
    UNEVEN_LOOKS,
    Credible,
    Limit,
)
from cudal1.harness.timing.quads import ROLES
from cudal1.measurement import Doubt, Role

PLAIN_US, CLAIMED_US, COUNT = 400.0, 200.0, 8
EMPTY_US = 300.0
SLOTS = 2 * COUNT
LOOP_US, SLACK_US = MOST_LOOP_US, WORK_SLACK_NS / 1000


class Played:
    """A stand-in for a measurement: bursts take what the test says."""

    def __init__(
        self,
        timed: Order,
        *,
        now_us: float = CLAIMED_US,
        once_us: float = 0.0,
        output_bytes: int = HOARD_BYTES,
        num_outputs: int = 1,
        more_bytes: int = 0,
        usual_us: float | None = 5.0,
        claimed_us: float = CLAIMED_US,
        uneven_us: tuple[float, ...] = (0.0,),
        busy_looks: int = 0,
        last: float = math.inf,
        worked_us: float = CLAIMED_US,
        device: str = "cpu",
        quicker: float = 1.0,
        num_slow: int = 0,
        busy_us: float = PLAIN_US,
        reference_once_us: float = 0.0,
        outside_us: float = 0.0,
        copying_us: float = 0.0,
    ) -> None:
        self.num_calls = COUNT
        self._outside_us = outside_us
        self._copying_us = copying_us
        self.called = 0
        self.num_looks = 0
        self._uneven_us = iter(uneven_us)
        self.uneven_since: list[int] = []
        self._busy_looks = busy_looks
        self._busy_us = busy_us
        self._last = last
        self._worked_us = {Role.REFERENCE: PLAIN_US, Role.CANDIDATE: worked_us}
        self._us = {Role.REFERENCE: PLAIN_US, Role.CANDIDATE: claimed_us}
        self._now_us = {Role.REFERENCE: PLAIN_US / quicker, Role.CANDIDATE: now_us / quicker}
        self._num_slow = num_slow
        self._once_us = {Role.REFERENCE: -reference_once_us, Role.CANDIDATE: -once_us}
        layout = SimpleNamespace(
            outputs=(None,) * num_outputs, output_bytes=output_bytes, num_slots=SLOTS
        )
        self._runner: Any = SimpleNamespace(
            layout=layout, timed_order=timed, usual_us=lambda *_: usual_us
        )
        self._workers: list[Any] = [
            SimpleNamespace(held_bytes=(1 << 30) + each, job=SimpleNamespace(device=device))
            for each in (more_bytes, 0)
        ]

    def judged(self) -> Limit:
        quads: Any = self
        examination: Any = SimpleNamespace(
            fresh=lambda count: [None] * count, order=self._runner.timed_order
        )
        candidate, reference = self._workers
        return Credible(quads, examination, self._runner, candidate, reference, quads).limit()

    def limit(self) -> float:
        return self.judged().speedup

    def net_us(self, role: Role) -> float:
        return self._us[role]

    def burst_us(self, role: Role) -> float:
        return COUNT * self._us[role] + self._once_us[role] + self.time_empty(COUNT)

    def time_empty(self, count: int) -> float:
        return EMPTY_US + 50.0 * count

    @property
    def burst_times(self) -> Played:
        return self

    def outside_us(self, _count: int) -> float:
        return self._outside_us

    def worked_us(self, role: Role, _count: int) -> float:
        own_us = (self._runner.usual_us() or 0.0) + self.time_empty(COUNT) / COUNT
        return self._worked_us[role] + own_us

    def copying_us(self, _reference: Any, _times: int) -> float:
        return self._copying_us

    def last_speedup(self) -> float:
        return self._last

    def __len__(self) -> int:
        return 1 + self.called // COUNT

    def uneven_us(self, since: int) -> float:
        self.uneven_since.append(since)
        return next(self._uneven_us)

    def bursts(
        self, _candidate: Any, _reference: Any, order: Order, count: int, times: int
    ) -> dict[Role, list[float]]:
        self.num_looks += 1
        self.called += count * times
        now_us = self._now_us
        if self.num_looks <= self._busy_looks:
            now_us = {**now_us, Role.CANDIDATE: self._busy_us}
        found = {
            role: [count * now_us[role] + self._once_us[role] + self.time_empty(count)] * times
            for role in ROLES
        }
        slow_us = count * PLAIN_US + self.time_empty(count)
        found[Role.CANDIDATE][: self._num_slow] = [slow_us] * min(times, self._num_slow)
        return found


@pytest.mark.parametrize(
    ("played", "doubt"),
    [
        (Played(Order.CHAIN), Doubt.OVERHEAD),
        (Played(Order.CHAIN, worked_us=2 * CLAIMED_US), Doubt.WORK),
        (Played(Order.CHAIN, more_bytes=100 * HOARD_BYTES, now_us=PLAIN_US), Doubt.PREPARED),
        (Played(Order.CHAIN, uneven_us=(500.0, 500.0, 110.0)), Doubt.UNEVEN),
        (Played(Order.KEEP, uneven_us=(500.0, 500.0, 110.0)), Doubt.UNEVEN),
        (Played(Order.KEEP, now_us=PLAIN_US), Doubt.TOGETHER),
        (Played(Order.KEEP, once_us=1000.0), Doubt.ONCE),
        (Played(Order.KEEP, last=1.1), Doubt.LONGER),
        (Played(Order.KEEP), Doubt.MEDIAN),
    ],
)
def test_the_doubt_that_lowers_a_claim_most_is_named(played: Played, doubt: Doubt) -> None:
    assert played.judged().doubt is doubt


# --- on a CPU ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual_us", "counted_us"), [(0, 0), (5, 5), (GAP_US, GAP_US), (40, GAP_US), (None, GAP_US)]
)
def test_all_of_our_own_python_is_added_to_the_candidate_s_time(
    usual_us: float | None, counted_us: float
) -> None:
    played = Played(Order.CHAIN, usual_us=usual_us)
    added_us = LOOP_US + SLACK_US + counted_us
    assert played.limit() == pytest.approx(PLAIN_US / (CLAIMED_US + added_us))


def test_each_further_output_adds_to_the_candidate_s_time() -> None:
    added_us = LOOP_US + SLACK_US + 5.0 + 15 * OUTPUT_US
    played = Played(Order.CHAIN, num_outputs=16)
    assert played.limit() == pytest.approx(PLAIN_US / (CLAIMED_US + added_us))


@pytest.mark.parametrize("worked_us", [0.5 * CLAIMED_US, CLAIMED_US, 1.5 * CLAIMED_US])
def test_a_claim_is_believed_only_as_far_as_the_computed_times_support_it(worked_us: float) -> None:
    rest_us = max(CLAIMED_US, worked_us) + LOOP_US + SLACK_US + 5.0
    assert Played(Order.CHAIN, worked_us=worked_us).limit() == pytest.approx(PLAIN_US / rest_us)


def test_a_candidate_that_computes_outside_of_intervals_is_believed_less() -> None:
    outside_us = 100.0
    rest_us = CLAIMED_US + (WARM - 1) * outside_us + LOOP_US + SLACK_US + 5.0
    played = Played(Order.CHAIN, outside_us=outside_us)
    assert played.limit() == pytest.approx(PLAIN_US / rest_us)


def test_a_fake_device_that_sleeps_is_believed_by_the_clock() -> None:
    played = Played(Order.CHAIN, worked_us=10 * CLAIMED_US, device="fake")
    assert played.limit() == Played(Order.CHAIN).limit()


@pytest.mark.parametrize("num_held", [1, 100, 1000])
def test_a_candidate_that_could_hold_prepared_outputs_is_called_until_they_are_used_up(
    num_held: int,
) -> None:
    played = Played(Order.CHAIN, more_bytes=num_held * HOARD_BYTES)
    believed = played.limit()
    assert played.called >= max(2 * num_held + COUNT, num_held + LEAST_AFTER_HOARD * COUNT)
    assert believed == pytest.approx(Played(Order.CHAIN).limit())  # its saving remains


def test_a_candidate_that_might_hold_too_many_prepared_outputs_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("cudal1.harness.timing.credible.time.monotonic", lambda: next(clock))
    assert Played(Order.CHAIN, more_bytes=1000 * HOARD_BYTES).limit() < 1


@pytest.mark.parametrize(
    ("uneven_us", "added_us"),
    [
        ([0.05 * CLAIMED_US], 0.0),
        ([500.0, 0.0], 0.0),
        ([500.0, 500.0, 0.0], 0.0),
        ([500.0, 500.0, 110.0], 100.0),
    ],
)
def test_work_of_many_calls_that_is_done_in_one_is_added_if_it_comes_again(
    uneven_us: list[float], added_us: float
) -> None:
    played = Played(Order.CHAIN, uneven_us=tuple(uneven_us))
    rest_us = CLAIMED_US + LOOP_US + SLACK_US + 5.0 + added_us
    assert played.limit() == pytest.approx(PLAIN_US / rest_us)


def test_an_uneven_candidate_is_looked_at_for_longer_each_time() -> None:
    played = Played(Order.KEEP, uneven_us=(500.0, 500.0, 500.0))
    played.limit()
    first, second, third = played.uneven_since
    assert first == 0
    assert third - second == UNEVEN_LOOKS[0] * second
    assert UNEVEN_LOOKS[1] > UNEVEN_LOOKS[0]


def test_a_saving_that_ends_after_the_prepared_outputs_is_not_believed() -> None:
    played = Played(Order.CHAIN, more_bytes=100 * HOARD_BYTES, now_us=PLAIN_US)
    assert played.limit() < 1


def test_a_look_charges_a_candidate_for_preparing_what_the_next_look_sees() -> None:
    held, twice_us = 100 * HOARD_BYTES, 2 * PLAIN_US - CLAIMED_US
    until_the_first_look = 3  # one pair, and the pairs that use up what it holds
    played = Played(Order.CHAIN, more_bytes=held, busy_looks=until_the_first_look, busy_us=twice_us)
    assert played.limit() < 1


def test_a_machine_that_has_become_quicker_lowers_no_claim() -> None:
    played = Played(Order.CHAIN, more_bytes=100 * HOARD_BYTES, quicker=2.0)
    assert played.limit() == pytest.approx(Played(Order.CHAIN).limit())


@pytest.mark.parametrize(("num_slow", "is_believed"), [(10, True), (13, False)])
def test_a_few_disturbed_pairs_of_many_lower_no_claim(num_slow: int, is_believed: bool) -> None:
    """There are 101 pairs, and no more may be disturbed than the mean can bear."""
    held = 100 * COUNT * HOARD_BYTES
    played = Played(Order.CHAIN, more_bytes=held, num_slow=num_slow)
    slow_share = num_slow / 101 * PLAIN_US / CLAIMED_US
    least_us = (CLAIMED_US * (1 + slow_share)) + LOOP_US + SLACK_US + 5.0
    assert (played.limit() >= PLAIN_US / least_us) is is_believed


@pytest.mark.parametrize("more_bytes", [-1 << 20, 0, 1 << 20])
def test_small_outputs_are_not_worth_preparing(more_bytes: int) -> None:
    played = Played(Order.CHAIN, more_bytes=more_bytes, output_bytes=HOARD_BYTES - 8)
    played.limit()
    assert played.called == 0


# --- on a GPU ------------------------------------------------------------------------------------


def test_a_saving_that_chains_bear_out_is_believed() -> None:
    assert Played(Order.KEEP).limit() == pytest.approx(PLAIN_US / CLAIMED_US)


def test_a_candidate_that_is_fast_only_on_inputs_that_come_together_saves_a_launch_at_most() -> (
    None
):
    played = Played(Order.KEEP, now_us=PLAIN_US)
    assert played.limit() == pytest.approx(PLAIN_US / (PLAIN_US - LAUNCH_US))


@pytest.mark.parametrize("copying_us", [LAUNCH_US / 2, LAUNCH_US, 4 * LAUNCH_US])
def test_a_copy_that_only_the_reference_makes_is_no_saving(copying_us: float) -> None:
    """Chains contain no copies and show that the candidate is as fast as the reference."""
    played = Played(
        Order.COPY, now_us=PLAIN_US, claimed_us=PLAIN_US - copying_us, copying_us=copying_us
    )
    assert played.limit() == pytest.approx(1.0)


def test_a_saving_that_chains_bear_out_is_believed_where_outputs_are_copied() -> None:
    played = Played(Order.COPY, copying_us=4 * LAUNCH_US)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)


def test_a_launch_may_hide_in_chains_except_for_what_a_copy_explains() -> None:
    saved_us = PLAIN_US - CLAIMED_US - LAUNCH_US
    played = Played(Order.COPY, now_us=PLAIN_US - saved_us, copying_us=4.0)
    assert played.limit() == pytest.approx(PLAIN_US / (CLAIMED_US + 4.0))


@pytest.mark.parametrize("busy_looks", range(1 + MORE_LOOKS))
def test_chains_in_a_busy_moment_are_run_again(busy_looks: int) -> None:
    played = Played(Order.KEEP, busy_looks=busy_looks)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)
    assert Played(Order.KEEP, busy_looks=1 + MORE_LOOKS).limit() < PLAIN_US / CLAIMED_US


def test_a_claim_is_believed_only_as_far_as_the_last_bursts_support_it() -> None:
    assert Played(Order.KEEP, last=1.1).limit() == 1.1


def test_a_saving_once_a_burst_is_no_speedup() -> None:
    believed = Played(Order.KEEP, once_us=1000.0).limit()
    each_us = (1000.0 - ONCE_US) / COUNT
    assert believed == pytest.approx(PLAIN_US / (CLAIMED_US + each_us))


@pytest.mark.parametrize("once_us", [ONCE_US - 1, -ONCE_US])
def test_a_small_saving_once_a_burst_is_not_looked_at_for_long(once_us: float) -> None:
    played = Played(Order.KEEP, once_us=once_us)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)
    assert played.num_looks == 2  # the chains, and shorter bursts


def test_a_clock_that_drifted_since_the_timed_bursts_saves_nothing() -> None:
    assert Played(Order.KEEP, quicker=1.1).limit() == pytest.approx(PLAIN_US / CLAIMED_US)
    played = Played(Order.KEEP, now_us=CLAIMED_US / 1.1)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)
    assert played.num_looks == 2 + 2 * ENOUGH_PAIRS  # short and long ones, in turn


def test_a_saving_once_a_burst_that_the_reference_has_too_is_no_advantage() -> None:
    played = Played(Order.KEEP, once_us=500.0, reference_once_us=500.0)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)


def test_a_reference_that_spends_more_once_a_burst_is_not_the_measure() -> None:
    played = Played(Order.KEEP, once_us=0.0, reference_once_us=-500.0)
    assert played.limit() == pytest.approx(PLAIN_US / CLAIMED_US)
    assert Played(Order.KEEP, once_us=1000.0, reference_once_us=-500.0).limit() == pytest.approx(
        Played(Order.KEEP, once_us=1000.0).limit()
    )


def test_a_saving_once_a_burst_is_looked_at_until_it_is_sure() -> None:
    played = Played(Order.KEEP, once_us=500.0)
    played.limit()
    assert played.num_looks == 2 + 2 * ONCE_PAIRS


def test_work_of_many_calls_that_is_done_in_one_is_added_on_a_gpu_too() -> None:
    believed = Played(Order.KEEP, uneven_us=(500.0, 500.0, 110.0)).limit()
    assert believed == pytest.approx(PLAIN_US / (CLAIMED_US + 100.0))
