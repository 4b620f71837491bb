"""The judge holds an output as it was when its worker said "done", or nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudal1.harness.exchange import pieces
from cudal1.harness.exchange.pieces import NUM_GLANCES, HostPiece, SlotPiece, stage_all, tensor_at
from cudal1.harness.sandbox.memory import Look
from cudal1.harness.shared.wire import IN_RING, Layout, TensorSpec, offsets

SIZE = 2048
LAYOUT = Layout((), (), (TensorSpec("float32", (SIZE,)),), num_slots=1)
NUM_BYTES = LAYOUT.output_bytes
EARLY, LATE, POISON = b"e", b"l", b"p"
NOTHING = memoryview(bytearray())


class Output:
    """An output in which every byte changes after a number of reads."""

    def __init__(self, num_reads: float) -> None:
        self.num_reads = num_reads

    def read(self, target: memoryview, place: int) -> None:
        del place
        target[:] = (EARLY if self.num_reads > 0 else LATE) * len(target)
        self.num_reads -= 1

    def look(self, place: int, num_bytes: int) -> Look:
        del place, num_bytes
        return Look([])


class Slot(bytearray):
    """An output's final content; its parts are read as `output` says."""

    def __init__(self, output: Output) -> None:
        super().__init__((EARLY if output.num_reads > NUM_GLANCES else LATE) * NUM_BYTES)
        self._output = output

    def __getitem__(self, where: Any) -> Any:
        target = memoryview(bytearray(super().__getitem__(where)))
        self._output.read(target, 0)
        return target


def place(number: int) -> memoryview:
    return memoryview(number.to_bytes(8, sys.byteorder)).cast("Q")


def in_its_own(output: Output, held: memoryview) -> HostPiece:
    worker: Any = SimpleNamespace(
        places=place(4096), memory=output, ring=SimpleNamespace(memory=torch.empty(0))
    )
    return HostPiece(1, NOTHING, NOTHING, worker, held, LAYOUT, 0)


def in_a_slot(output: Output, held: memoryview) -> SlotPiece:
    published: Any = Slot(output)
    return SlotPiece(1, NOTHING, NOTHING, published, held)


@pytest.fixture
def held() -> memoryview:
    return memoryview(bytearray(POISON * NUM_BYTES))


Make = Callable[[Output, memoryview], HostPiece | SlotPiece]
both = pytest.mark.parametrize("make", [in_its_own, in_a_slot])


@both
def test_an_output_that_does_not_change_is_held(make: Make, held: memoryview) -> None:
    make(Output(float("inf")), held).capture()
    assert held == EARLY * NUM_BYTES


@both
@pytest.mark.parametrize("num_reads", range(1, NUM_GLANCES + 1))
def test_an_output_that_changes_while_it_is_read_is_not_held(
    make: Make, num_reads: int, held: memoryview
) -> None:
    make(Output(num_reads), held).capture()
    assert held == POISON * NUM_BYTES


def test_an_output_in_the_ring_is_read_there(held: memoryview) -> None:
    ring = torch.full((2 * NUM_BYTES,), ord(EARLY), dtype=torch.uint8)
    ring[:NUM_BYTES] = ord(LATE)
    worker: Any = SimpleNamespace(
        places=place(IN_RING + NUM_BYTES), memory=Output(0), ring=SimpleNamespace(memory=ring)
    )
    HostPiece(1, NOTHING, NOTHING, worker, held, LAYOUT, 0).capture()
    assert held == EARLY * NUM_BYTES


@pytest.mark.parametrize("large_bytes", [1 << 20, 64])
def test_staged_tensors_lie_in_their_slots_and_nothing_else_changes(
    large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LARGE_BYTES", large_bytes)
    specs = (TensorSpec("float32", (3, 5)), TensorSpec("int64", (2,)), TensorSpec("bool", (7,)))
    layout = Layout((), specs, (), num_slots=4)
    slots = [
        [torch.rand(5, 3).T, torch.tensor([i, -i]), torch.rand(7) < 0.5]  # the first one has gaps
        for i in range(3)
    ]
    memory = torch.full((4 * layout.input_bytes,), 7, dtype=torch.uint8)
    stage_all(memory, layout.input_bytes, slots, specs)
    expected = torch.full_like(memory, 7)
    for number, tensors in enumerate(slots):
        start = number * layout.input_bytes
        for tensor, spec, offset in zip(tensors, specs, offsets(specs), strict=True):
            tensor_at(expected, start + offset, spec).copy_(tensor)
    assert memory.equal(expected)
    assert memory[3 * layout.input_bytes :].eq(7).all()
