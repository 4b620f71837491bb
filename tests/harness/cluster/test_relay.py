"""A relay compiles for the command on a machine of a cluster; here without a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.errors import CudaL1Error
from cudal1.harness.builds import builder as building
from cudal1.harness.cluster.relay import Relay
from cudal1.harness.device.device import find_device, find_devices
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from tests.harness.builds.test_builder import TOP, candidate_of

NamedProblem = Callable[[str], Problem]


@pytest.fixture
def relay(quick: EvalProtocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """A relay that may compile one candidate at a time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = Relay(DeviceClass.CPU, find_devices)
    assert opened.open_builder([find_device(DeviceClass.CPU)], quick, 1).error is None
    yield opened
    opened.close_builder()


@pytest.mark.slow
def test_a_build_is_answered_and_kept_until_the_end(
    relay: Relay, named_problem: NamedProblem, tmp_path: Path
) -> None:
    silu = named_problem("silu")
    candidate = candidate_of(silu, TOP + "make()")
    failure, content, complaint = relay.build(silu, candidate)
    assert (failure, complaint) == (None, "")
    assert b"extensions/ours" in (content or b"")
    assert list(tmp_path.glob("cudal1-builds-*"))
    relay.close_builder()
    assert not list(tmp_path.glob("cudal1-builds-*"))
    assert relay.build(silu, candidate) == (None, None, "")


@pytest.mark.slow
def test_a_candidate_that_compiles_nothing_is_known_and_one_that_ends_is_not(
    relay: Relay, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    assert relay.build(silu, candidate_of(silu, TOP)) == (None, b"", "")
    assert relay.build(silu, candidate_of(silu, TOP + "os._exit(1)")) == (None, None, "")


def test_the_later_of_two_messages_that_overtake_each_other_counts(relay: Relay) -> None:
    builder = relay._builder
    assert builder is not None
    relay.make_room(2, wanted=False)
    relay.make_room(1, wanted=True)
    assert not builder._makes_room
    relay.make_room(3, wanted=True)
    assert builder._makes_room


def test_a_folder_that_cannot_be_used_is_an_error(
    relay: Relay, quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise CudaL1Error("cannot keep what is compiled there")

    monkeypatch.setattr(building, "BuildCache", refuses)
    answer = Relay(DeviceClass.CPU, find_devices).open_builder(
        [find_device(DeviceClass.CPU)], quick, 1
    )
    assert "cannot keep" in str(answer.error)
