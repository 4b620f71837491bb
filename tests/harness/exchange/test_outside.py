"""Work outside of the interval is charged as far as it exceeds the reference's there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.harness.exchange.interval import Interval, Order
from cudal1.harness.exchange.outside import (
    COPY_SLACK,
    DISTURBED_NS,
    ENOUGH,
    WARM,
    WORK_SLACK_NS,
    Account,
    Outside,
)
from cudal1.harness.sandbox.sandbox import Worker

CALLS = 4
USUAL_NS, INTERVAL_NS, REST_NS = 70_000, 1_000_000, 900_000
LOOP_NS, LOOP_INTERVAL_NS = 50_000, 30_000
LONG_NS = 3_000_000
"""Time for which another program had a core, in ns."""


def ran(
    outside_ns: int,
    *,
    has_changed: bool = False,
    order: Order = Order.CHAIN,
    waited_ns: int = 0,
    elapsed_ns: int = INTERVAL_NS,
    entry: str = "Model",
    device: str = "cpu",
) -> tuple[Worker, Interval]:
    """Return a worker after a burst, and the burst's interval."""
    worker: Any = SimpleNamespace(
        worked_ns=elapsed_ns + outside_ns,
        has_changed=has_changed,
        job=SimpleNamespace(entry=entry, device=device),
    )
    interval: Any = SimpleNamespace(
        order=order, elapsed_ns=elapsed_ns + waited_ns, copying_ns=outside_ns, waited_ns=waited_ns
    )
    return cast(Worker, worker), cast(Interval, interval)


def remember(outside: Outside, burst: tuple[Worker, Interval], count: int = CALLS) -> Account:
    """Account for a burst of ours."""
    return outside.account(*burst, count, is_ours=True, is_watched=False, rest_ns=REST_NS)


def account(outside: Outside, burst: tuple[Worker, Interval], count: int = CALLS) -> Account:
    """Account for a candidate's burst."""
    return outside.account(*burst, count, is_ours=False, is_watched=True, rest_ns=REST_NS)


def charged_ns(outside: Outside, burst: tuple[Worker, Interval], count: int = CALLS) -> int:
    """Return what a candidate's burst is charged beyond its interval, in ns."""
    return account(outside, burst, count).elapsed_ns - burst[1].elapsed_ns


@pytest.fixture
def host() -> Outside:
    """The account of a CPU and of a reference that itself does something outside."""
    outside = Outside(torch.device("cpu"))
    for others_ns in (-5_000, 0, 900_000):  # one of them was disturbed
        remember(outside, ran(USUAL_NS + others_ns))
    return outside


def test_a_burst_without_calls_says_nothing_about_what_is_usual() -> None:
    outside = Outside(torch.device("cpu"))
    for order in (Order.EMPTY, Order.KEEP):
        assert outside.usual_us(order, CALLS) is None
        remember(outside, ran(USUAL_NS, order=order))
    assert outside.usual_us(Order.EMPTY, CALLS) is None
    assert outside.usual_us(Order.KEEP, CALLS) is not None


@pytest.mark.parametrize("less_ns", [0, 1_000, USUAL_NS, INTERVAL_NS])
def test_a_candidate_that_does_no_more_than_the_reference_is_not_charged(
    host: Outside, less_ns: int
) -> None:
    allowed_ns = USUAL_NS + WORK_SLACK_NS * CALLS
    assert charged_ns(host, ran(allowed_ns - less_ns)) == 0


@pytest.mark.parametrize("more_ns", [1, 1_000, 800_000])
def test_a_candidate_that_computes_more_pays_for_it(host: Outside, more_ns: int) -> None:
    allowed_ns = USUAL_NS + WORK_SLACK_NS * CALLS
    found = account(host, ran(allowed_ns + more_ns))
    assert found.outside_ns == more_ns
    assert found.elapsed_ns == INTERVAL_NS + round(WARM * more_ns)


def test_a_candidate_that_sleeps_less_than_the_reference_is_not_charged_for_that() -> None:
    outside = Outside(torch.device("cpu"))
    remember(outside, ran(-INTERVAL_NS // 2))
    assert charged_ns(outside, ran(-1_000)) == 0


def test_a_burst_beside_others_on_its_device_is_charged_for_nothing(host: Outside) -> None:
    """Unusual work may be theirs, and no burst is timed there."""
    worker, interval = ran(INTERVAL_NS, has_changed=True)
    told = host.account(worker, interval, CALLS, is_ours=False, is_watched=False, rest_ns=REST_NS)
    assert (told.elapsed_ns, told.outside_ns) == (INTERVAL_NS, 0)


def test_all_time_is_charged_if_a_process_came_or_went(host: Outside) -> None:
    found = account(host, ran(0, has_changed=True, waited_ns=LONG_NS))
    assert found.elapsed_ns == found.computed_ns == INTERVAL_NS + LONG_NS + REST_NS


@pytest.mark.parametrize(("order", "calls"), [(Order.KEEP, CALLS), (Order.CHAIN, CALLS + 1)])
def test_bursts_that_the_reference_never_ran_are_not_charged(
    host: Outside, order: Order, calls: int
) -> None:
    assert charged_ns(host, ran(REST_NS, order=order), calls) == 0


def test_longer_copies_are_charged_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(torch.device("cpu"))
    monkeypatch.setattr(outside, "_is_cuda", True)
    for others_ns in (0, 30_000):
        remember(outside, ran(USUAL_NS + others_ns))
    allowed_ns = round(COPY_SLACK * USUAL_NS)
    assert charged_ns(outside, ran(allowed_ns, has_changed=True)) == 0
    assert charged_ns(outside, ran(allowed_ns + 5_000)) == 5_000


# --- where other programs have a core ------------------------------------------------------------


@pytest.fixture
def busy() -> Outside:
    """The account of a CPU on which the reference was disturbed and an empty worker was not."""
    outside = Outside(torch.device("cpu"))
    for _ in range(ENOUGH):
        remember(outside, ran(LOOP_NS, elapsed_ns=LOOP_INTERVAL_NS, entry=""))
    remember(outside, ran(USUAL_NS, waited_ns=LONG_NS))
    return outside


@pytest.mark.parametrize(
    ("waited_ns", "is_disturbed"), [(0, False), (DISTURBED_NS, False), (LONG_NS, True)]
)
def test_a_burst_that_waited_for_a_core_is_disturbed(
    busy: Outside, waited_ns: int, is_disturbed: bool
) -> None:
    for told in (remember, account):
        assert told(busy, ran(0, waited_ns=waited_ns)).is_disturbed is is_disturbed


def test_a_candidate_that_waits_while_the_reference_never_does_is_not_disturbed(
    host: Outside,
) -> None:
    """Such a candidate makes itself wait."""
    burst = ran(0, waited_ns=LONG_NS)
    assert not account(host, burst).is_disturbed
    remember(host, burst)
    assert account(host, burst).is_disturbed


def test_the_fake_device_sleeps_and_is_never_disturbed(busy: Outside) -> None:
    assert not remember(busy, ran(0, waited_ns=LONG_NS, device="fake")).is_disturbed


@pytest.mark.parametrize("waited_ns", [0, LONG_NS])
@pytest.mark.parametrize("told", [remember, account])
def test_the_computed_time_is_the_same_however_long_others_had_the_core(
    busy: Outside, waited_ns: int, told: Callable[..., Account]
) -> None:
    assert told(busy, ran(LOOP_NS, waited_ns=waited_ns)).computed_ns == INTERVAL_NS


@pytest.mark.parametrize("outside_ns", [0, 400_000, 5_000_000])
def test_computing_outside_of_the_interval_counts(busy: Outside, outside_ns: int) -> None:
    """A burst that counts by what was computed counts it whenever it was computed."""
    found = account(busy, ran(LOOP_NS + outside_ns, waited_ns=LONG_NS))
    assert found.computed_ns == INTERVAL_NS + outside_ns


def test_a_worker_that_sleeps_in_the_interval_is_given_no_time_for_that(busy: Outside) -> None:
    asleep = ran(LOOP_NS - INTERVAL_NS, waited_ns=LONG_NS)  # hardly computes at all
    assert account(busy, asleep).computed_ns == INTERVAL_NS


def test_our_own_loop_is_left_out_only_as_far_as_it_certainly_takes() -> None:
    outside = Outside(torch.device("cpu"))

    def left_out_ns() -> int:
        return INTERVAL_NS + LOOP_NS - account(outside, ran(LOOP_NS)).computed_ns

    assert left_out_ns() == 0
    for count, loop_ns in ((1, LOOP_NS // 3), (CALLS, 2 * LOOP_NS)):  # of a busy machine
        worker, interval = ran(loop_ns, elapsed_ns=LOOP_INTERVAL_NS, waited_ns=LONG_NS, entry="")
        interval.elapsed_ns = LOOP_INTERVAL_NS
        remember(outside, (worker, interval), count)
    for loop_ns in (3 * LOOP_NS, LOOP_NS, *[2 * LOOP_NS] * (ENOUGH - 2)):
        assert left_out_ns() == LOOP_NS // 3
        remember(outside, ran(loop_ns, elapsed_ns=LOOP_INTERVAL_NS, entry=""))
    assert left_out_ns() == LOOP_NS


def test_usual_work_is_learned_from_bursts_that_were_not_disturbed(busy: Outside) -> None:
    assert busy.usual_us(Order.CHAIN, CALLS) is None
    remember(busy, ran(USUAL_NS))
    remember(busy, ran(9 * USUAL_NS, waited_ns=LONG_NS))
    assert busy.usual_us(Order.CHAIN, CALLS) == USUAL_NS / CALLS / 1000


def test_a_disturbed_empty_burst_takes_as_long_as_was_computed(busy: Outside) -> None:
    """The time of an empty burst is subtracted from that of all others."""
    told = [
        remember(busy, ran(LOOP_NS, elapsed_ns=LOOP_INTERVAL_NS, waited_ns=waited_ns, entry=""))
        for waited_ns in (0, LONG_NS)
    ]
    assert [each.elapsed_ns for each in told] == [LOOP_INTERVAL_NS, LOOP_INTERVAL_NS + LOOP_NS]
