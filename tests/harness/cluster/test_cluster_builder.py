"""Machines of a cluster compile for each other, and the loss of one loses no candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.cluster.cluster import processes_on_cluster
from cudal1.harness.cluster.cluster_builder import ClusterBuilder
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.harness.builds.test_builder import SAYS, TOP, candidate_of
from tests.harness.conftest import open_cluster
from tests.harness.nodes import find_on_node, node_of

pytestmark = pytest.mark.slow

NamedProblem = Callable[[str], Problem]
Open = Callable[..., ClusterBuilder]
ONLY_IF_BUILT = (
    TOP.replace("x * torch.sigmoid(x)", "x * torch.sigmoid(x) if was_made else x")
    + """
was_made = made.exists()
if not was_made:
    make()
"""
)


@pytest.fixture(scope="module")
def shared_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Any, list[DeviceProcess]]]:
    """A cluster for all tests, with its device processes: to start it takes longer than a test."""
    with open_cluster(tmp_path_factory) as started:
        started.add_node(num_cpus=1)
        with processes_on_cluster(started.address, DeviceClass.CPU, find=find_on_node) as (
            found,
            _,
        ):
            yield started, found


@pytest.fixture
def cluster(shared_cluster: tuple[Any, list[DeviceProcess]]) -> Any:
    assert len(shared_cluster[0].list_all_nodes()) == 2, "the test that removes one is the last"
    return shared_cluster[0]


@pytest.fixture
def device_processes(
    cluster: Any, shared_cluster: tuple[Any, list[DeviceProcess]]
) -> list[DeviceProcess]:
    return shared_cluster[1]


@pytest.fixture
def open_builder(
    device_processes: list[DeviceProcess], quick: EvalProtocol, tmp_path: Path
) -> Open:
    def opened(num_workers: int = 1) -> ClusterBuilder:
        return ClusterBuilder(
            device_processes, quick, folder=tmp_path / "builds", num_workers=num_workers
        )

    return opened


def _candidates(problem: Problem, source: str, count: int) -> list[Candidate]:
    return [candidate_of(problem, f"{source}\n# {number}") for number in range(count)]


def test_both_machines_build_and_each_build_is_there_for_all(
    open_builder: Open, device_processes: list[DeviceProcess], named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    work = _candidates(silu, TOP + "make()", 4)
    with open_builder() as builder:
        assert builder.num_workers == 2
        assert all(builder.takes(each) for each in work)
        futures = [builder.begin(silu, each) for each in [*work, *work]]
        assert [future.result() for future in futures] == [None] * 8
        assert {machine for machine, _ in builder._begun.values()} == {
            s.machine for s in device_processes
        }
        assert all(b"extensions/ours" in builder.content(each) for each in work)
        assert not any(builder.takes(each) for each in work)
        assert all(builder.serves(device_process.machine) for device_process in device_processes)
        assert not builder.serves("")
        assert builder.complaint == ""
    with open_builder(num_workers=0) as later:
        assert all(later.content(each) for each in work)
        assert not later.takes(candidate_of(silu, TOP))


def test_a_fleet_gets_the_builds(
    open_builder: Open,
    device_processes: list[DeviceProcess],
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    silu = named_problem("silu")
    said = "Error building extension 'ours': [1/2] c++\nmain.cpp:3: error: 'y' not declared\n"
    broken = candidate_of(silu, TOP + SAYS.format(said))
    work = [*_candidates(silu, ONLY_IF_BUILT, 4), broken]
    with open_builder() as builder, Fleet(device_processes, quick, builder=builder) as fleet:
        found = list(fleet.judge_all([(silu, each) for each in work], timing=False))
    judged = {j.verdict.candidate_id: j.verdict for j in found if isinstance(j, Judgement)}
    assert [judged[each.id].status for each in work] == [Status.CORRECT] * 4 + [Status.NO_BUILD]
    assert "'y' not declared" in (judged[broken.id].reason or "")


def test_an_error_of_our_own_in_a_build_costs_that_build_alone(
    open_builder: Open, named_problem: NamedProblem
) -> None:
    no_candidate: Any = SimpleNamespace(id="none", source="")
    with open_builder() as builder:
        assert builder.begin(named_problem("silu"), no_candidate).result(timeout=600) is None
        assert (builder.num_workers, builder.complaint) == (2, "")


def test_the_largest_group_with_one_toolchain_builds(
    open_builder: Open, device_processes: list[DeviceProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (device_process.machine for device_process in device_processes)
    offers = {one: ("old", 1), other: ("new", 3)}
    monkeypatch.setattr(ClusterBuilder, "_offers", lambda _: (offers, ""))
    with open_builder() as builder:
        assert builder.num_workers == 3
        assert (builder.serves(one), builder.serves(other)) == (False, True)


def test_a_cluster_that_cannot_build_says_why_and_no_candidate_waits(
    open_builder: Open, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterBuilder, "_offers", lambda _: ({}, "no disk"))
    with open_builder() as builder:
        silu = named_problem("silu")
        candidate = candidate_of(silu, TOP)
        assert not builder.takes(candidate)
        assert builder.begin(silu, candidate).result() is None
        assert builder.complaint == "extensions are not compiled ahead: no disk"


def test_builds_of_a_machine_that_leaves_are_left_to_the_judge(
    open_builder: Open,
    device_processes: list[DeviceProcess],
    cluster: Any,
    named_problem: NamedProblem,
) -> None:
    silu = named_problem("silu")
    (other,) = [s for s in device_processes if not s.device.id.endswith(cluster.head_node.node_id)]
    slow = _candidates(silu, TOP + "make()\nwhile True:\n    pass", 2)
    with open_builder() as builder:
        futures = [builder.begin(silu, each) for each in slow]
        (lost,) = [i for i, each in enumerate(slow) if builder._begun[each.id][0] == other.machine]
        cluster.remove_node(node_of(cluster, other), allow_graceful=False)
        assert futures[lost].result(timeout=600) is None
        assert (builder.num_workers, builder.complaint) == (1, "")
        again = candidate_of(silu, TOP + "make()")
        builder.begin(silu, again)
        assert builder._begun[again.id][0] != other.machine
        builder.pass_over(again)  # it waits behind the slow candidate
        assert again.id not in builder._begun
        assert not builder.begin(silu, slow[1 - lost]).done()
