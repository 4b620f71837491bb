"""Memory that workers share with the judge is lent, cleared and given back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch

from cudal1.errors import WorkerError
from cudal1.harness.sandbox import rings as module
from cudal1.harness.sandbox.rings import DeviceRings, host_ring

NUM_BYTES = 64


class Memory:
    """A stand-in for a GPU's memory."""

    all: ClassVar[list[Memory]] = []
    most = 3

    def __init__(self) -> None:
        self.all.append(self)
        self.bytes = torch.full((NUM_BYTES,), 7, dtype=torch.uint8)
        self.is_mapped = True

    @classmethod
    def make(cls, num_bytes: int) -> Memory:
        assert num_bytes == NUM_BYTES
        if len(cls.all) == cls.most:
            raise RuntimeError("out of memory")
        return cls()

    def tensor(self) -> torch.Tensor:
        assert self.is_mapped
        return self.bytes

    def descriptor(self) -> int:
        return os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        self.is_mapped = False


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceRings]:
    monkeypatch.setattr(module, "DeviceMemory", Memory)
    monkeypatch.setattr(Memory, "all", [])
    lender = DeviceRings(NUM_BYTES)
    yield lender
    lender.close()


def test_large_rings_that_come_back_are_not_kept(
    rings: DeviceRings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FREE_BYTES", NUM_BYTES)
    lent = [rings.lend() for _ in range(2)]
    for ring in lent:
        os.close(ring.descriptor)
        ring.release()
    assert [each.is_mapped for each in Memory.all] == [True, False]


def test_a_returned_ring_is_lent_again_and_holds_nothing(rings: DeviceRings) -> None:
    first = rings.lend()
    first.memory.fill_(9)
    first.release()
    second = rings.lend()
    assert len(Memory.all) == 1
    assert not second.memory.any()
    assert second.descriptor != first.descriptor


def test_two_workers_are_never_lent_the_same_ring(rings: DeviceRings) -> None:
    first, second = rings.lend(), rings.lend()
    assert first.memory.data_ptr() != second.memory.data_ptr()


def test_closing_frees_returned_rings_at_once_and_lent_ones_when_they_return(
    rings: DeviceRings,
) -> None:
    kept, given = rings.lend(), rings.lend()
    given.release()
    rings.close()
    assert [each.is_mapped for each in Memory.all] == [True, False]
    kept.release()
    assert not Memory.all[0].is_mapped


def test_too_little_memory_raises_an_error_with_a_remedy(rings: DeviceRings) -> None:
    lent = [rings.lend() for _ in range(Memory.most)]
    with pytest.raises(WorkerError, match=r"lower protocol\.ring_bytes"):
        rings.lend()
    lent[0].release()
    assert not rings.lend().memory.any()


def test_the_size_of_a_cpu_s_ring_cannot_be_changed() -> None:
    ring = host_ring(mmap.PAGESIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(ring.descriptor, 0)
    os.close(ring.descriptor)
