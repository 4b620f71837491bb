"""Exchange a piece of a burst: publish inputs together, then take the outputs that are awaited.

Everything is prepared before the clock runs; what is left is copying. The copies of the outputs are
not in the interval. Their time depends on what happens to lie in which cache, and on a CPU on
whether many pages are one.

Threat: "done" was said while a process still writes. So the copies begin at once, in an order that
the judge drew, and find what is missing. On a CPU the rest may be written while the first is
copied, so some words are read before. On a GPU the time that copies take too long is charged
(`outside`). Where an output lies is the worker's word. It is taken for a place inside the shared
memory, or inside the worker's own (`memory`), or not at all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cudal1.harness.sandbox.memory import Look
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import IN_RING, WORD_BYTES, Layout, TensorSpec

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096
RANDOM = random.SystemRandom()
TURN_US, MAX_TURNS = 80.0, 20
"""Microseconds that a kernel of ours takes at most on a device that is ours; one that waits for its
turn takes longer (150 us). Kernels after which the judge gives up waiting for a worker that still
computes."""
NUM_GLANCES = 4
"""Number of words that are read before the copies, in two or three microseconds each. A worker that
delays an eighth of an output is seen in 4 calls of 10."""
LARGE_BYTES = 1 << 20
"""Bytes of a tensor from which the driver's own copy is twice as fast as a kernel for all."""


class Piece(Protocol):
    """Inputs that are published together, and the outputs that are then awaited."""

    num_calls: int
    is_refused: bool
    """True if an output was not taken because it may stand at several addresses."""
    num_untouched: int
    """Number of pages of outputs on a CPU that only the judge's reading made."""

    def publish(self, wake: Callable[[], None]) -> int:
        """Show the inputs to a worker that `wake` gets ready; return the clock's start, in ns."""
        ...

    def over(self) -> int:
        """Return when the clock may stop, in ns; called as soon as the worker says "done"."""
        ...

    def capture(self) -> None:
        """Hold the outputs in private memory; called at once after `over`."""
        ...


class HostPiece:
    """A piece on a CPU; outputs are read from the worker's memory, wherever it says they lie."""

    def __init__(
        self,
        num_calls: int,
        inputs: memoryview,
        staged: memoryview,
        worker: Worker,
        held: memoryview,
        layout: Layout,
        first: int,
    ) -> None:
        self.num_calls = num_calls
        self._inputs, self._staged = inputs, staged
        count, starts = len(layout.outputs), wire.offsets(layout.outputs)
        self._places = worker.places[first * count : (first + num_calls) * count]
        self._memory, self._ring = worker.memory, bytes_of(worker.ring.memory)
        self._targets: list[memoryview] = []
        for slot in range(first, first + num_calls):
            for start, spec in zip(starts, layout.outputs, strict=True):
                start += slot * layout.output_bytes
                self._targets.append(held[start : start + spec.num_bytes])
        self.is_refused = False
        self.num_untouched = 0
        self._parts = [_halves(target) for target in self._targets]
        self._order = RANDOM.sample(range(len(self._targets)), len(self._targets))
        self._poison = bytes(self._targets[0][:1])
        self._glances = _glances(self._targets)

    def publish(self, wake: Callable[[], None]) -> int:
        """Copy the inputs while the worker sleeps, and wake it."""
        self._inputs[:] = self._staged
        wake()
        return time.perf_counter_ns()

    def over(self) -> int:
        """Return the present time."""
        return time.perf_counter_ns()

    def capture(self) -> None:
        """Read some words of the outputs, then all of them."""
        places = self._places.tolist()
        for glance in self._glances:
            self._take(glance.seen, places[glance.which] + glance.where.start)
        self._take_all(places)
        for which, where, seen in self._glances:
            target = self._targets[which]
            if target[where] != seen:  # it came later, so nothing was there
                target[:] = self._poison * len(target)

    def _take_all(self, places: list[int]) -> None:
        for which in self._order:
            place, target = places[which], self._targets[which]
            before = self._look(place, target)
            for start, part in self._parts[which]:
                self._take(part, place + start)
            after = self._look(place, target)  # other pages may have come there meanwhile
            self.num_untouched += before.num_untouched
            harmless = b"\0" + self._poison  # unreadable bytes stay missing, and are noticed
            doubtful = before.doubtful + after.doubtful
            if any(bytes(target[part]).translate(None, harmless) for part in doubtful):
                target[:] = self._poison * len(target)
                self.is_refused = True

    def _look(self, place: int, target: memoryview) -> Look:
        """Return what the kernel says of a place's pages.

        The look comes right beside the reading: any time in between is time to replace pages.
        """
        return Look([]) if place >= IN_RING else self._memory.look(place, len(target))

    def _take(self, target: memoryview, place: int) -> None:
        if place < IN_RING:
            self._memory.read(target, place)
        else:  # in the ring, as the judge sees it
            found = self._ring[place - IN_RING :][: len(target)]
            target[: len(found)] = found


class Glance(NamedTuple):
    """One word of an output, read before the whole output is copied."""

    which: int
    where: slice
    seen: memoryview


def _glances(targets: Sequence[memoryview]) -> list[Glance]:
    """Return words at random places; each holds the target's bytes until it is read."""
    found: list[Glance] = []
    for _ in range(NUM_GLANCES):
        which = RANDOM.randrange(len(targets))
        start = RANDOM.randrange(max(1, len(targets[which]) - WORD_BYTES + 1))
        where = slice(start, start + WORD_BYTES)
        found.append(Glance(which, where, memoryview(bytearray(targets[which][where]))))
    return found


def _halves(target: memoryview) -> list[tuple[int, memoryview]]:
    """Split a target at a random page: the part from there on, then the part before it.

    Reading takes time: a worker that knew what is read last could write it meanwhile.
    """
    middle = RANDOM.randrange(max(1, -(-len(target) // PAGE_BYTES))) * PAGE_BYTES
    parts = (middle, target[middle:]), (0, target[:middle])
    return [(start, part) for start, part in parts if len(part)]


class SlotPiece:
    """A piece on a CPU; workers store their outputs in slots of the shared memory."""

    def __init__(
        self,
        num_calls: int,
        inputs: memoryview,
        staged: memoryview,
        outputs: memoryview,
        private: memoryview,
    ) -> None:
        self.num_calls = num_calls
        self.is_refused = False
        self.num_untouched = 0
        self._inputs, self._staged = inputs, staged
        self._outputs, self._private = outputs, private
        self._poison = bytes(private[:1])
        self._glances = _glances([private])

    def publish(self, wake: Callable[[], None]) -> int:
        """Copy the inputs while the worker sleeps, and wake it."""
        self._inputs[:] = self._staged
        wake()
        return time.perf_counter_ns()

    def over(self) -> int:
        """Return the present time."""
        return time.perf_counter_ns()

    def capture(self) -> None:
        """Copy some words of the outputs, then all of them."""
        for glance in self._glances:
            glance.seen[:] = self._outputs[glance.where]
        self._private[:] = self._outputs
        if any(self._private[glance.where] != glance.seen for glance in self._glances):
            self._private[:] = self._poison * len(self._private)


class DevicePiece:
    """A piece on a GPU; the judge's own context copies outputs from where the worker says they lie.

    The clock stops when the judge's context has the device, which it has once nothing runs in any
    other context. Only a copy engine, which needs no turn, may still write then.
    """

    def __init__(
        self,
        num_calls: int,
        inputs: torch.Tensor,
        staged: torch.Tensor,
        worker: Worker,
        held: torch.Tensor,
        layout: Layout,
        first: int,
    ) -> None:
        self.num_calls = num_calls
        self.is_refused = False
        self.num_untouched = 0
        self._inputs, self._staged = inputs, staged
        self._places, self._memory = worker.places, worker.ring.memory
        self._number = first * len(layout.outputs)
        self._targets: list[torch.Tensor] = []
        self._slots: list[int] = []
        starts = wire.offsets(layout.outputs)
        bounds = [*zip(starts, [*starts[1:], layout.output_bytes], strict=True)]
        for slot in range(first, first + num_calls):
            for start, end in bounds:
                place = slot * layout.output_bytes
                self._targets.append(held[place + start : place + end])  # padding included
                self._slots.append(layout.output_start + place + start)
        self._last = [self._memory.numel() - target.numel() for target in self._targets]
        self._order = RANDOM.sample(range(len(self._targets)), len(self._targets))
        self._claim = inputs.new_zeros(1)

    def publish(self, wake: Callable[[], None]) -> int:
        """Copy the inputs and wait for the copy, while the clock runs.

        A worker that takes the device meanwhile pays for that.
        """
        import torch

        wake()
        started_ns = time.perf_counter_ns()
        self._inputs.copy_(self._staged)
        torch.cuda.synchronize()
        return started_ns

    def over(self) -> int:
        """Wait until the judge's context has its turn at once: the device is the judge's."""
        import torch

        for _ in range(MAX_TURNS):
            started_ns = time.perf_counter_ns()
            self._claim.fill_(1)
            torch.cuda.synchronize()
            if time.perf_counter_ns() - started_ns < TURN_US * 1000:
                break
        return time.perf_counter_ns()

    def capture(self) -> None:
        """Copy the outputs and wait for the copies."""
        import torch

        number = self._number
        places = self._places[number : number + len(self._slots)].tolist()
        sources: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        for which in self._order:
            place, target = places[which], self._targets[which]
            start = place if 0 < place <= self._last[which] else self._slots[which]
            source = self._memory[start : start + target.numel()]
            if start % WORD_BYTES or target.numel() >= LARGE_BYTES:
                target.copy_(source)
            else:  # as words, which are copied several times as fast as bytes
                sources.append(source.view(torch.int64))
                targets.append(target.view(torch.int64))
        if targets:
            # one kernel for all; PyTorch's own optimisers call it, though no stub names it
            torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
        torch.cuda.synchronize()


def stage(
    memory: torch.Tensor, start: int, tensors: Sequence[torch.Tensor], specs: Sequence[TensorSpec]
) -> None:
    """Write tensors into a slot of `memory` that starts at `start`."""
    stage_all(memory[start:], 0, [tensors], specs)


def stage_all(
    memory: torch.Tensor,
    slot_bytes: int,
    slots: Sequence[Sequence[torch.Tensor]],
    specs: Sequence[TensorSpec],
) -> None:
    """Write tensors into slots of `memory` that begin at its start, one behind the other.

    A burst of short calls has hundreds of slots, and others wait for the device meanwhile. So one
    kernel copies all that is small.
    """
    import torch

    starts = wire.offsets(tuple(specs))
    places: list[torch.Tensor] = []
    small: list[torch.Tensor] = []
    for number, tensors in enumerate(slots):
        for tensor, spec, start in zip(tensors, specs, starts, strict=True):
            if not spec.num_bytes:
                continue
            place = tensor_at(memory, number * slot_bytes + start, spec)
            if spec.num_bytes >= LARGE_BYTES:
                place.copy_(tensor)
            else:
                places.append(place)
                small.append(tensor)
    if places:
        torch._foreach_copy_(places, small)  # pyright: ignore[reportPrivateImportUsage]


def tensor_at(memory: torch.Tensor, start: int, spec: TensorSpec) -> torch.Tensor:
    """Return the tensor that lies at `start`, over the same bytes."""
    return memory[start : start + spec.num_bytes].view(dtype_of(spec)).view(spec.shape)


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """Return the type of a tensor's elements."""
    import torch

    return getattr(torch, spec.dtype)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor of the CPU, without copying them."""
    return tensor.numpy().data
