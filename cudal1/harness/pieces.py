"""Inputs that are published together, and the outputs that are then awaited: one exchange.

Everything is prepared before the clock runs; what is left is copying. Threat: where an output lies
is the worker's word, so it is taken for a place inside the shared memory, or inside the worker's
own (`memory`), or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cudal1.harness import wire
from cudal1.harness.sandbox import Worker
from cudal1.harness.wire import Layout, TensorSpec

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096
RANDOM = random.SystemRandom()


class Piece(Protocol):
    """Inputs that are published together, and the outputs that are then awaited."""

    num_calls: int

    def publish(self) -> None:
        """Let the worker see the inputs."""
        ...

    def capture(self) -> None:
        """Hold the outputs in private memory."""
        ...


class HostPiece:
    """Of the CPU: outputs are read from the worker's own memory, wherever it says they lie."""

    def __init__(
        self, num_calls: int, inputs: memoryview, staged: memoryview, worker: Worker,
        held: memoryview, layout: Layout, first: int,
    ) -> None:  # fmt: skip
        self.num_calls = num_calls
        self._inputs, self._staged = inputs, staged
        count, starts = len(layout.outputs), wire.offsets(layout.outputs)
        self._places = worker.places[first * count : (first + num_calls) * count]
        self._memory = worker.memory
        self._parts: list[tuple[int, int, memoryview]] = []
        """Which output, where in it, and what to fill."""
        for number in range(num_calls * count):
            slot, which = divmod(number, count)
            start = (first + slot) * layout.output_bytes + starts[which]
            target = held[start : start + layout.outputs[which].num_bytes]
            self._parts += [(number, at, part) for at, part in _halves(target)]

    def publish(self) -> None:
        """Copied and there when it returns."""
        self._inputs[:] = self._staged

    def capture(self) -> None:
        """Copied and there when it returns."""
        places, read = self._places.tolist(), self._memory.read
        for number, start, part in self._parts:
            read(part, places[number] + start)


def _halves(target: memoryview) -> list[tuple[int, memoryview]]:
    """From some page on to the end, then from the beginning: only the judge knows where it begins.

    Reading takes time. Who knew what is read last could say "done" and write it meanwhile.
    """
    middle = RANDOM.randrange(max(1, -(-len(target) // PAGE_BYTES))) * PAGE_BYTES
    parts = (middle, target[middle:]), (0, target[:middle])
    return [(start, part) for start, part in parts if len(part)]


class SlotPiece:
    """Of the CPU where workers store their outputs in slots of the shared memory."""

    def __init__(
        self, num_calls: int, inputs: memoryview, staged: memoryview, outputs: memoryview,
        private: memoryview,
    ) -> None:  # fmt: skip
        self.num_calls = num_calls
        self._inputs, self._staged = inputs, staged
        self._outputs, self._private = outputs, private

    def publish(self) -> None:
        """Copied and there when it returns."""
        self._inputs[:] = self._staged

    def capture(self) -> None:
        """Copied and there when it returns."""
        self._private[:] = self._outputs


class DevicePiece:
    """Of a GPU: copied by the judge's own context, from wherever the worker says they lie."""

    def __init__(
        self, num_calls: int, inputs: torch.Tensor, staged: torch.Tensor, worker: Worker,
        held: torch.Tensor, layout: Layout, first: int,
    ) -> None:  # fmt: skip
        self.num_calls = num_calls
        self._inputs, self._staged = inputs, staged
        self._places, self._memory = worker.places, worker.ring.memory
        self._number = first * len(layout.outputs)
        self._targets: list[torch.Tensor] = []
        self._slots: list[int] = []
        starts = wire.offsets(layout.outputs)
        for slot in range(first, first + num_calls):
            for start, spec in zip(starts, layout.outputs, strict=True):
                place = slot * layout.output_bytes + start
                self._targets.append(held[place : place + spec.num_bytes])
                self._slots.append(layout.output_start + place)
        self._last = [self._memory.numel() - target.numel() for target in self._targets]

    def publish(self) -> None:
        """Copied and there when it returns."""
        import torch

        self._inputs.copy_(self._staged)
        torch.cuda.synchronize()

    def capture(self) -> None:
        """Copied and there when it returns."""
        import torch

        memory, number = self._memory, self._number
        places = self._places[number : number + len(self._slots)].tolist()
        sources = [
            memory[start : start + target.numel()]
            for start, target in zip(
                (
                    place if 0 < place <= last else slot
                    for place, last, slot in zip(places, self._last, self._slots, strict=True)
                ),
                self._targets,
                strict=True,
            )
        ]
        # one kernel for all; what PyTorch's own optimisers call, though no stub names it
        torch._foreach_copy_(self._targets, sources)  # pyright: ignore[reportPrivateImportUsage]
        torch.cuda.synchronize()


def stage(
    memory: torch.Tensor, start: int, tensors: Sequence[torch.Tensor], specs: Sequence[TensorSpec]
) -> None:
    """Write tensors into a slot of `memory` that starts at `start`."""
    for tensor, spec, offset in zip(tensors, specs, wire.offsets(tuple(specs)), strict=True):
        if spec.num_bytes:
            tensor_at(memory, start + offset, spec).copy_(tensor)


def tensor_at(memory: torch.Tensor, start: int, spec: TensorSpec) -> torch.Tensor:
    """The tensor that lies there, over the same bytes."""
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    return memory[start : start + spec.num_bytes].view(dtype).view(spec.shape)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor of the CPU, without copying them."""
    return tensor.numpy().data
