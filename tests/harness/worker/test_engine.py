"""On the CPU an output stays in its place, whatever kind of tensor it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from cudal1.harness.sandbox.memory import Memory
from cudal1.harness.sandbox.rings import sealed
from cudal1.harness.shared.wire import IN_RING, Job, Layout, TensorSpec
from cudal1.harness.worker.engine import HostEngine

SHAPE = (16, 16)
LAYOUT = Layout((), (), (TensorSpec("float32", SHAPE),), 1)
JOB = Job(
    device="cpu",
    entry="",
    init_inputs="[]",
    weight_names=(),
    layout=LAYOUT,
    seed=0,
    memory_bytes=0,
    cpu_s=None,
    core=None,
    folder="",
    ring_bytes=LAYOUT.total_bytes,
    allow_tf32=False,
    in_place=True,
)


class Doubled(torch.Tensor):
    """A tensor that shows the double of what its memory holds."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # pyright: ignore
        plain = [a.as_subclass(torch.Tensor) * 2 if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(SHAPE),
    "every other element": lambda x: torch.cat([x, x])[::2],
    "a view with an offset": lambda x: torch.cat([x, x])[3:19],
    "negated by a bit": lambda x: torch.imag(torch.complex(x, x).conj()),
    "negated and in order": lambda x: torch.ops.aten._neg_view(x),
    "a parameter": torch.nn.Parameter,
    "a class of its own": lambda x: x.as_subclass(Doubled),
}


@pytest.fixture
def memory() -> Iterator[Memory]:
    opened = Memory()
    opened.open(os.getpid())
    yield opened
    opened.close()


def engine_and_slot(job: Job) -> tuple[HostEngine, torch.Tensor]:
    descriptor, _ = sealed("ring", job.ring_bytes)
    engine = HostEngine()
    ring = engine.share(descriptor, job)
    os.close(descriptor)
    return engine, ring[: 4 * 256].view(torch.float32).view(SHAPE)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_an_output_of_any_kind_is_found_where_the_engine_says(kind: str, memory: Memory) -> None:
    engine, slot = engine_and_slot(JOB)
    value = KINDS[kind](torch.randn(SHAPE))
    expected = (value * 1).clone()
    place = engine.store(value, slot)
    del value
    found = torch.empty(SHAPE)
    if place >= IN_RING:
        assert place == IN_RING
        found.copy_(slot)
    else:
        memory.read(found.numpy().reshape(-1).view("uint8").data, place)
    assert torch.equal(found, expected)


def test_a_plain_output_is_not_copied() -> None:
    engine, slot = engine_and_slot(JOB)
    value = torch.randn(SHAPE)
    assert engine.store(value, slot) == value.data_ptr()
    assert not slot.any()


def test_an_output_in_the_ring_is_named_by_its_place_there() -> None:
    engine, slot = engine_and_slot(JOB)
    assert engine.store(slot[3:], slot) == IN_RING + 3 * slot.stride(0) * slot.element_size()


def test_an_output_lives_until_the_judge_holds_it() -> None:
    engine, slot = engine_and_slot(JOB)
    value = torch.randn(SHAPE)
    alive = [value.untyped_storage()._weak_ref()]  # pyright: ignore
    engine.store(value, slot)
    del value
    assert not torch.UntypedStorage._expired(alive[0])  # pyright: ignore
    engine.release()
    assert torch.UntypedStorage._expired(alive[0])  # pyright: ignore


def test_outputs_go_to_their_slots_if_the_judge_cannot_read_them() -> None:
    engine, slot = engine_and_slot(replace(JOB, in_place=False))
    value = torch.randn(SHAPE)
    assert engine.store(value.t(), slot) == 0
    assert torch.equal(slot, value.t())


def test_naps_become_longer_while_no_input_comes_and_are_never_longer_than_two_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps_s: list[float] = []
    monkeypatch.setattr("time.sleep", naps_s.append)
    host = HostEngine()
    for times in range(40):
        host.rest(times)
    assert naps_s[:3] == [20e-6, 40e-6, 80e-6]
    assert naps_s == sorted(naps_s)
    assert max(naps_s) < 0.002
    assert sum(naps_s[:9]) > 0.004  # a judge's usual time without a core
