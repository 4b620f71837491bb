"""A fleet judges on the machines of a Ray cluster; here two nodes of one machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, DeviceError, WorkerError
from cudal1.harness.cluster.cluster import processes_on_cluster
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.harness.conftest import open_cluster
from tests.harness.nodes import find_on_node, node_of
from tests.turns import Turns

pytestmark = pytest.mark.slow

NamedProblem = Callable[[str], Problem]


def _candidates(problem: Problem, count: int) -> list[tuple[Problem, Candidate]]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"{problem.null_source}\n# {number}"))
        for number in range(count)
    ]


def _ids(work: list[tuple[Problem, Candidate]]) -> list[str]:
    return sorted(candidate.id for _, candidate in work)


def test_a_node_that_is_killed_loses_no_verdict(
    cluster: Any, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    cluster.add_node(num_cpus=1)
    # so many that one node has some left when the other has its first verdict, however late
    work, found = _candidates(named_problem("silu"), 60), list[Judgement]()
    with processes_on_cluster(cluster.address, DeviceClass.CPU, find=find_on_node) as (
        device_processes,
        left_out,
    ):
        assert (len(device_processes), left_out) == (2, [])
        assert len({device_process.machine for device_process in device_processes}) == 2
        (other,) = [
            s for s in device_processes if not s.device.id.endswith(cluster.head_node.node_id)
        ]
        doomed = [node_of(cluster, other)]
        with Fleet(device_processes, quick) as fleet:
            for judgement in fleet.judge_all(work, timing=False):
                assert isinstance(judgement, Judgement)
                found.append(judgement)
                if doomed and len({each.verdict.device_id for each in found}) == 2:
                    cluster.remove_node(doomed.pop(), allow_graceful=False)
            assert fleet.lost == [other]
    assert sorted(j.verdict.candidate_id for j in found) == _ids(work)
    assert {j.verdict.status for j in found} == {Status.CORRECT}


def _nothing(_: DeviceClass) -> list[Device]:
    raise DeviceError("no GPU can be used")


class TestTwoNodes:
    """One cluster for all of them; the last one takes a node away."""

    @pytest.fixture(scope="class")
    def two_nodes(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with open_cluster(tmp_path_factory) as started:
            started.add_node(num_cpus=1)
            yield started

    def test_two_nodes_of_one_machine_have_its_device_once(self, two_nodes: Any) -> None:
        with processes_on_cluster(two_nodes.address, DeviceClass.CPU) as (
            device_processes,
            left_out,
        ):
            assert [device_process.device for device_process in device_processes] == [
                find_device(DeviceClass.CPU)
            ]
            (line,) = left_out
            assert "its devices are those of" in line

    def test_machines_without_a_device_are_named(self, two_nodes: Any) -> None:
        with (
            pytest.raises(DeviceError, match=r"no device to judge on: .*no GPU can be used"),
            processes_on_cluster(two_nodes.address, DeviceClass.CPU, find=_nothing),
        ):
            pass

    def test_an_error_on_a_node_is_raised_here(
        self, two_nodes: Any, quick: EvalProtocol, named_problem: NamedProblem
    ) -> None:
        with processes_on_cluster(two_nodes.address, DeviceClass.CPU, find=find_on_node) as (
            device_processes,
            _,
        ):
            alone = [
                s for s in device_processes if not s.device.id.endswith(two_nodes.head_node.node_id)
            ]
            refused = pytest.raises(DeviceError, match="in use by process")
            with alone[0].device.locked(), refused, Fleet(alone, quick):
                pass
            # so many that some are left when the relay notices that its node is gone
            work = _candidates(named_problem("silu"), 60)
            with Fleet(alone, quick) as fleet:
                two_nodes.remove_node(node_of(two_nodes, alone[0]), allow_graceful=False)
                with pytest.raises(WorkerError, match="start again"):
                    list(fleet.judge_all(work, timing=False))


NONE_ANSWERS = r"no Ray cluster answers .*ray start --head"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_an_address_without_a_cluster_is_an_error_that_says_how_to_start_one(address: str) -> None:
    with (
        pytest.raises(DeviceError, match=NONE_ANSWERS),
        processes_on_cluster(address, DeviceClass.CPU),
    ):
        pass


def test_a_missing_cluster_is_an_error_that_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: Turns
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with turns.alone():  # Ray would find the cluster of another test
        # rightly found by `auto`, and not ours to end: another suite on this machine may have it
        if any(process.name() == "raylet" for process in psutil.process_iter()):
            pytest.skip("somebody else's Ray cluster runs on this machine")
        with (
            pytest.raises(DeviceError, match=NONE_ANSWERS),
            processes_on_cluster("auto", DeviceClass.CPU),
        ):
            pass


def test_a_missing_ray_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'cudal1\[cluster\]'"),
        processes_on_cluster("auto", DeviceClass.CPU),
    ):
        pass
