"""What lies outside of the interval is charged, as far as the reference does less there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.harness.interval import Interval, Order
from cudal1.harness.outside import COPY_SLACK, WARM, WORK_SLACK_NS, Outside
from cudal1.harness.sandbox import Worker

CALLS = 4
USUAL_NS, INTERVAL_NS, REST_NS = 70_000, 1_000_000, 900_000


def ran(
    outside_ns: int, *, has_changed: bool = False, order: Order = Order.CHAIN
) -> tuple[Worker, Interval]:
    """A worker after a burst, and the burst's interval."""
    worker: Any = SimpleNamespace(worked_ns=INTERVAL_NS + outside_ns, has_changed=has_changed)
    interval: Any = SimpleNamespace(order=order, elapsed_ns=INTERVAL_NS, copying_ns=outside_ns)
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
