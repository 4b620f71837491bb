"""Problems of one device in processes of their own, several side by side where it has lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import CrowdedError, SuiteError
from cudal1.harness import find_device
from cudal1.harness.device import Device
from cudal1.harness.pool import Pool
from cudal1.harness.pools import Pending, Pools
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

NAMES = ("fake_silu", "fake_pair", "fake_chain")


@pytest.fixture(scope="module")
def device() -> Device:
    """A fake one on which three judges take turns; not the one that other tests lock."""
    plain = find_device(DeviceClass.FAKE)
    core = -1 if plain.worker_core is None else plain.worker_core
    cores = (core,) * 3 if plain.worker_core is not None else ()
    return plain.model_copy(update={"id": f"{plain.id}-lanes", "lane_cores": cores})


@pytest.fixture
def pools(device: Device, quick: EvalProtocol) -> Iterator[Pools]:
    if not device.lane_cores:
        pytest.skip("a machine with one core has no lanes")
    with Pools(device, quick) as opened:
        yield opened


@pytest.mark.slow
def test_several_problems_are_judged_side_by_side(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    def begun(name: str) -> Pending:
        problem = named_problem(name)
        return pools.judge(problem, Candidate(problem_id=problem.id, source=problem.null_source))

    pending = [begun(name) for name in (*NAMES, *NAMES)]
    assert len(pools._busy()) == len(NAMES)
    assert {lane.problem_id for lane in pools._busy()} == {named_problem(n).id for n in NAMES}
    for each in pending:
        verdict = each.result().verdict
        assert verdict.status is Status.CORRECT, verdict.reason
        assert verdict.measurement is not None
        assert verdict.measurement.certified <= 1.02
    assert not pools._busy()


def test_a_problem_that_ends_its_process_costs_itself(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    good = named_problem("fake_silu")
    ends = good.model_copy(update={"source": f"{good.source}\nimport os; os._exit(3)\n"})
    asked = [
        pools.judge(each, Candidate(problem_id=each.id, source=each.null_source), timing=False)
        for each in (ends, good, ends)
    ]
    for pending in (asked[0], asked[2]):
        with pytest.raises(SuiteError, match="ends its process"):
            pending.result()
    assert asked[1].result().verdict.status is Status.CORRECT


def test_a_problem_that_finds_no_memory_is_tried_once_more_alone(
    pools: Pools, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = named_problem("fake_silu")
    real = Pool.judge

    def judge(self: Pool, *arguments: object, **named: object) -> object:
        if self._num_lanes > 1:
            raise CrowdedError("no room")
        return real(self, *arguments, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Pool, "judge", judge)  # before the problem's process is forked
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    asked = [pools.judge(problem, candidate, timing=False) for _ in range(2)]
    assert all(each.result().verdict.status is Status.CORRECT for each in asked)
    assert all(each.asked.is_alone for each in asked)
