"""A pytest plugin: tests that fail where a module is not correct, or not certified fast enough.

    def test_my_kernel_is_faster(assert_faster):
        assert_faster(Model, ModelNew, get_inputs, at_least=1.2)

pytest loads it where cudal1 is installed. It imports nothing of the judge before a test asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudal1.verdict import Verdict

WAIT_S = 600.0
"""Seconds that a test waits for a device: tests that run beside it may judge on it, too."""


@pytest.fixture(scope="session")
def assert_faster() -> Callable[..., Verdict]:
    """Return a function that judges like `cudal1.judge`, and fails the test below a speedup."""
    return _assert_faster


def _assert_faster(*given: Any, at_least: float = 1.0, **options: Any) -> Verdict:
    """Judge, and fail unless the candidate is correct and certified `at_least` times as fast.

    Args:
        given: problem and candidate, as for `cudal1.judge`.
        at_least: the certified speedup that is asked for; 1.0 asks that it is not slower.
        options: the options of `cudal1.judge`.

    Returns:
        The verdict.

    Raises:
        CudaL1Error: no verdict could be given.
    """
    __tracebackhide__ = True
    from cudal1.api.judging import judge

    verdict = judge(*given, **{"wait_s": WAIT_S, **options})
    complaint = _complaint(verdict, at_least)
    if complaint is not None:
        pytest.fail(complaint, pytrace=False)
    return verdict


def _complaint(verdict: Verdict, at_least: float) -> str | None:
    if not verdict.is_successful:
        return f"not correct: {verdict.status.replace('_', ' ')}: {verdict.reason}"
    measured = verdict.measurement
    if measured is None or measured.certified >= at_least:
        return None
    sure = "" if measured.alpha is None else f" at {1 - measured.alpha:.0%} confidence"
    return (
        f"correct, but certified {measured.certified:.3g}x as fast{sure}, and {at_least:.3g}x is "
        f"asked for (estimate {measured.speedup:.3g}x: {measured.reference_us:.4g} us with "
        f"{measured.candidate_us:.4g} us a call)"
    )
