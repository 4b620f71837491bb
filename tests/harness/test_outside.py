"""What lies outside of the interval is charged, as far as the reference does less there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.harness.interval import Interval, Order
from cudal1.harness.outside import COPY_SLACK, DISTURBED_NS, WARM, WORK_SLACK_NS, Outside
from cudal1.harness.sandbox import Worker

CALLS = 4
USUAL_NS, INTERVAL_NS, REST_NS = 70_000, 1_000_000, 900_000
LOOP_NS, LOOP_INTERVAL_NS = 50_000, 30_000
LONG_NS = 3_000_000
"""What somebody else had a core for."""


def ran(
    outside_ns: int, *, has_changed: bool = False, order: Order = Order.CHAIN, waited_ns: int = 0,
    elapsed_ns: int = INTERVAL_NS, entry: str = "Model", device: str = "cpu",
) -> tuple[Worker, Interval]:  # fmt: skip
    """A worker after a burst, and the burst's interval."""
    worker: Any = SimpleNamespace(
        worked_ns=elapsed_ns + outside_ns, has_changed=has_changed,
        job=SimpleNamespace(entry=entry, device=device),
    )  # fmt: skip
    interval: Any = SimpleNamespace(
        order=order, elapsed_ns=elapsed_ns + waited_ns, copying_ns=outside_ns, waited_ns=waited_ns
    )
    return cast(Worker, worker), cast(Interval, interval)


@pytest.fixture
def host() -> Outside:
    """Of a CPU, and of a reference that does something there itself."""
    outside = Outside(torch.device("cpu"))
    for others_ns in (-5_000, 0, 900_000):  # one of them was disturbed
        outside.remember(*ran(USUAL_NS + others_ns), CALLS)
    return outside


@pytest.mark.parametrize("less_ns", [0, 1_000, USUAL_NS, INTERVAL_NS])
def test_who_does_what_the_reference_does_or_less_is_not_charged(
    host: Outside, less_ns: int
) -> None:
    allowed_ns = USUAL_NS + WORK_SLACK_NS * CALLS
    assert host.unusual_ns(*ran(allowed_ns - less_ns), CALLS, REST_NS) == 0


@pytest.mark.parametrize("more_ns", [1, 1_000, 800_000])
def test_who_computes_more_pays_for_it(host: Outside, more_ns: int) -> None:
    allowed_ns = USUAL_NS + WORK_SLACK_NS * CALLS
    charged_ns = round(WARM * more_ns)
    assert host.unusual_ns(*ran(allowed_ns + more_ns), CALLS, REST_NS) == charged_ns


def test_who_sleeps_less_than_the_reference_is_not_charged_for_that() -> None:
    outside = Outside(torch.device("cpu"))
    outside.remember(*ran(-INTERVAL_NS // 2), CALLS)
    assert outside.unusual_ns(*ran(-1_000), CALLS, REST_NS) == 0


def test_where_somebody_came_or_went_all_the_time_is_charged(host: Outside) -> None:
    assert host.unusual_ns(*ran(0, has_changed=True), CALLS, REST_NS) == REST_NS


@pytest.mark.parametrize(("order", "calls"), [(Order.KEEP, CALLS), (Order.CHAIN, CALLS + 1)])
def test_of_bursts_that_the_reference_never_ran_nothing_is_known(
    host: Outside, order: Order, calls: int
) -> None:
    assert host.unusual_ns(*ran(REST_NS, order=order), calls, REST_NS) == 0


def test_on_a_gpu_it_is_the_copies_that_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(torch.device("cpu"))
    monkeypatch.setattr(outside, "_is_cuda", True)
    for others_ns in (0, 30_000):
        outside.remember(*ran(USUAL_NS + others_ns), CALLS)
    allowed_ns = round(COPY_SLACK * USUAL_NS)
    assert outside.unusual_ns(*ran(allowed_ns, has_changed=True), CALLS, REST_NS) == 0
    assert outside.unusual_ns(*ran(allowed_ns + 5_000), CALLS, REST_NS) == 5_000


# --- where other programs have a core ------------------------------------------------------------


@pytest.fixture
def busy() -> Outside:
    """Of a CPU on which the reference was disturbed, and a worker that computes nothing was not."""
    outside = Outside(torch.device("cpu"))
    outside.remember(*ran(LOOP_NS, elapsed_ns=LOOP_INTERVAL_NS, entry=""), CALLS)
    outside.remember(*ran(USUAL_NS, waited_ns=LONG_NS), CALLS)
    return outside


@pytest.mark.parametrize(("waited_ns", "is_disturbed"), [
    (0, False), (DISTURBED_NS, False), (LONG_NS, True),
])  # fmt: skip
def test_a_burst_in_which_somebody_waited_for_a_core_is_disturbed(
    busy: Outside, waited_ns: int, is_disturbed: bool
) -> None:
    for is_ours in (True, False):
        found = busy.is_disturbed(*ran(0, waited_ns=waited_ns), is_ours=is_ours)
        assert found is is_disturbed


def test_who_waits_while_the_reference_never_does_is_not_disturbed(host: Outside) -> None:
    """It makes itself wait."""
    burst = ran(0, waited_ns=LONG_NS)
    assert not host.is_disturbed(*burst, is_ours=False)
    host.remember(*ran(0, waited_ns=LONG_NS), CALLS)
    assert host.is_disturbed(*burst, is_ours=False)


def test_the_fake_device_sleeps_and_is_never_disturbed(busy: Outside) -> None:
    burst = ran(0, waited_ns=LONG_NS, device="fake")
    assert not busy.is_disturbed(*burst, is_ours=True)


@pytest.mark.parametrize("waited_ns", [0, LONG_NS])
def test_what_was_computed_is_the_same_however_long_others_had_the_core(
    busy: Outside, waited_ns: int
) -> None:
    assert busy.computed_ns(*ran(LOOP_NS, waited_ns=waited_ns), CALLS) == INTERVAL_NS


@pytest.mark.parametrize("outside_ns", [0, 400_000, 5_000_000])
def test_what_is_computed_outside_of_the_interval_counts(busy: Outside, outside_ns: int) -> None:
    """Where bursts are told by what was computed, it does not matter when."""
    found = busy.computed_ns(*ran(LOOP_NS + outside_ns, waited_ns=LONG_NS), CALLS)
    assert found == INTERVAL_NS + outside_ns


def test_who_sleeps_in_the_interval_is_given_no_time_for_that(busy: Outside) -> None:
    asleep = ran(LOOP_NS - INTERVAL_NS, waited_ns=LONG_NS)  # hardly computes at all
    assert busy.computed_ns(*asleep, CALLS) == INTERVAL_NS


def test_of_our_own_loop_no_more_is_left_out_than_it_certainly_takes() -> None:
    outside = Outside(torch.device("cpu"))
    assert outside.computed_ns(*ran(LOOP_NS), CALLS) == INTERVAL_NS + LOOP_NS
    for count, loop_ns in ((1, LOOP_NS // 3), (CALLS, 2 * LOOP_NS)):  # a busy machine's
        burst = ran(loop_ns, elapsed_ns=LOOP_INTERVAL_NS, waited_ns=LONG_NS, entry="")
        burst[1].elapsed_ns = LOOP_INTERVAL_NS
        outside.remember(*burst, count)
    assert outside.computed_ns(*ran(LOOP_NS), CALLS) == INTERVAL_NS + LOOP_NS - LOOP_NS // 3
    outside.remember(*ran(LOOP_NS, elapsed_ns=LOOP_INTERVAL_NS, entry=""), CALLS)
    assert outside.computed_ns(*ran(LOOP_NS), CALLS) == INTERVAL_NS


def test_what_is_usual_is_told_by_bursts_that_nobody_disturbed(busy: Outside) -> None:
    assert busy.usual_us(Order.CHAIN, CALLS) is None
    busy.remember(*ran(USUAL_NS), CALLS)
    busy.remember(*ran(9 * USUAL_NS, waited_ns=LONG_NS), CALLS)
    assert busy.usual_us(Order.CHAIN, CALLS) == USUAL_NS / CALLS / 1000
