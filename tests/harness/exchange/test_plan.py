"""Bursts take no more memory than the device and the protocol allow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1.harness.exchange import plan
from cudal1.harness.sandbox.zygote import MAX_LEAVING
from cudal1.harness.shared.wire import Layout, TensorSpec
from cudal1.protocol import EvalProtocol

GIB = 1 << 30


@pytest.mark.parametrize("total", [8, 16, 24, 40, 79, 139])
def test_all_rings_together_leave_a_part_of_a_gpu_to_the_candidate(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    protocol = quick.model_copy(update={"ring_bytes": 8 * GIB})
    properties = SimpleNamespace(total_memory=total * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    ring = plan.ring_bytes(torch.device("cuda", 0), protocol)
    arena, outputs = ring // 2, ring // 2  # where inputs are as large as outputs
    num_rings = 6 + MAX_LEAVING  # a candidate's two, next, the reference's two, empty
    assert num_rings * (ring + arena) + 4 * outputs + ring // 2 <= 0.95 * total * GIB
    assert ring <= protocol.ring_bytes
    assert ring > total * GIB // 50


def floats(num_bytes: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec("float32", (num_bytes // 4,)),)


@pytest.mark.parametrize("inputs", [4096, 67 << 20, 512 << 20])
@pytest.mark.parametrize("outputs", [4, 8 << 20, 520 << 20])
@pytest.mark.parametrize("intermediates", [0, GIB])
def test_slots_and_arena_fit_the_room_and_hold_all_that_the_reference_needs(
    inputs: int, outputs: int, intermediates: int
) -> None:
    allowed, room = 4 * GIB, 6 * GIB
    one = Layout(floats(GIB), floats(inputs), floats(outputs), 1)
    layout, arena = plan.shared(
        one, most=1024, allowed=allowed, room=room, call_bytes=outputs + intermediates
    )
    slot_bytes, kept = inputs + layout.output_bytes, plan.allocated_bytes(outputs)
    assert layout.num_slots * slot_bytes + arena <= room
    assert layout.num_slots * slot_bytes <= allowed
    assert arena >= layout.num_slots * kept + intermediates
    one_more = (layout.num_slots + 1) * (slot_bytes + kept) + intermediates + plan.LEAST_ARENA
    assert layout.num_slots == 1024 or one_more > room or one_more > allowed
    assert (layout.weights, layout.inputs, layout.outputs) == (one.weights, one.inputs, one.outputs)


@pytest.mark.parametrize(("size", "slots"), [(GIB, 2), (3 * GIB, 1)])
def test_a_problem_that_is_large_for_the_room_has_few_slots_and_an_arena_that_suffices(
    size: int, slots: int
) -> None:
    layout, arena = plan.shared(
        Layout((), floats(size), floats(size), 1),
        most=16,
        allowed=4 * GIB,
        room=6 * GIB,
        call_bytes=5 * size,
    )
    assert layout.num_slots == slots
    assert arena >= (slots + 4) * size


def test_heavy_weights_take_no_slots() -> None:
    found = [
        plan.shared(
            Layout(floats(weights), floats(4096), floats(4096), 1),
            most=16,
            allowed=GIB,
            room=GIB + GIB // 2,
            call_bytes=4096,
        )
        for weights in (4096, 8 * GIB)
    ]
    assert [layout.num_slots for layout, _ in found] == [16, 16]
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize(
    ("size", "taken"),
    [(100, 662), (8 << 20, (12 << 20) + 512), (64 << 20, 64 << 20), ((64 << 20) + 4, 66 << 20)],
)
def test_small_outputs_have_a_margin_and_large_ones_pieces_of_their_own(
    size: int, taken: int
) -> None:
    assert plan.allocated_bytes(size) == taken


def test_the_protocol_alone_sets_the_size_of_rings_on_a_cpu(quick: EvalProtocol) -> None:
    assert plan.ring_bytes(torch.device("cpu"), quick) == quick.ring_bytes
