"""Define what judge and worker share: the layout of their shared memory, and nothing else.

Threat: everything here is writable by untrusted code. The judge therefore reads back only four
things:

* fixed-width counters;
* raw tensor bytes in shared memory that it made itself;
* the place of an output in that memory or in the worker's own: any number, since it reaches nothing
  else, and wrong bytes are a wrong output;
* up to `TEXT_BYTES` of text that is shown to people and never decides anything.

Bytes written before a counter is raised are seen before it is. That is true of x86-64, and of other
processors only because of the system calls in between.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Any

ALIGNMENT = 64
CONTROL_BYTES = 1 << 16
TEXT_OFFSET = 512
TEXT_BYTES = 2000
WORD_BYTES = 8
PLACES_OFFSET = 4096
MAX_PLACES = (CONTROL_BYTES - PLACES_OFFSET) // WORD_BYTES
"""Largest number of outputs of all slots of a ring."""
IN_RING = 1 << 63
"""Number added to the place of a CPU's output in the ring; the place counts from the ring's first
byte."""

DTYPES: tuple[str, ...] = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
DTYPE_BYTES: dict[str, int] = dict(zip(DTYPES, (8, 4, 2, 2, 8, 4, 2, 1, 1, 1), strict=True))


class Word(IntEnum):
    """Indices of the 64-bit words at the start of the control block.

    The judge reads only the worker's words, and remembers itself what it wrote.
    """

    DONE = 0
    """Worker: number of calls finished since it started."""
    STATE = 1
    """Worker: a `State`."""
    TEXT_LENGTH = 2
    """Worker: bytes of display text, about its weights while it is ready, about its failure
    later."""
    AWAKE = 3
    """Worker: number of calls that it was ready for, with their inputs, since it started."""
    NUM_CALLS = 8
    """Judge: number of calls in the burst that `go` starts."""
    PUBLISHED = 9
    """Judge: number of inputs published since the worker started; call i may begin once this is
    above i."""
    ORDER = 10
    """Judge: order of the burst: `CHAIN`, `KEEP`, `COPY` or `EMPTY`."""
    WEIGHTS = 11
    """Judge: raised when the ring holds other weights, to be loaded before the next burst."""


CHAIN, KEEP, COPY, EMPTY = 0, 1, 2, 3
"""Orders of a burst. CHAIN: each input comes once the output before it is held. KEEP: all inputs
come at once, and all outputs are kept and handed over after the last call. COPY: as KEEP, but each
output is copied to its slot at once. EMPTY: all inputs come at once, and nothing is called."""
FREEZE, THAW, WATCH, LOOK = b"f", b"t", b"w", b"l"
"""Orders of the judge to a warden. The warden repeats each but WATCH once it has obeyed."""
WORKED = struct.Struct("<cqq?")
"""A warden's answer to FREEZE: the order repeated, and three values. These are the nanoseconds of
processor time of all processes since the last FREEZE, the bytes that they have in memory and no
file has, and whether any of them began or ended meanwhile."""
COMPUTED = struct.Struct("<cqq")
"""A warden's answer to LOOK: the order repeated, and nanoseconds of processor time. The first are
those of the worker's own process since it began, the second those of all that it has started."""
LIMITS = struct.Struct("<qq")
"""Content after WATCH: bytes beyond those of a fresh worker for all processes together; the
worker's core, which the warden keeps off (-1: none)."""
CONVOLVE = b"c"
"""Message to a worker without a job, which has no descriptors as a job has: to get ready for
convolutions."""
UP = b"u"
"""Second message of a zygote, after its layers: it has imported torch."""
SOURCE_NAME = "candidate.py"
"""Name of the file that a worker imports."""
GO, HAND_OVER = b"g", b"h"
"""Orders of the judge to a worker. GO: the next burst or call comes. HAND_OVER: write what was
compiled to the file that comes next (`worker.builds`), and answer with the number of bytes."""
MAX_BUILDS_BYTES = 64 << 20
HANDED_OVER = struct.Struct("<Q")
TOKEN_BYTES = 16
HELLO = struct.Struct(f"<Q{TOKEN_BYTES}s")
"""First message of a worker, before it has a job: an address, and the bytes that lie there."""


class State(IntEnum):
    """The state of a worker, in its own untrusted words; only ever used against the candidate."""

    STARTING = 0
    READY = 1
    BUILD_FAILED = 2
    CALL_FAILED = 3
    WRONG_OUTPUT = 4
    """An output of another type, shape, dtype or number than the reference's."""


LAYERS: tuple[str, ...] = (
    "fork",
    "empty_environment",
    "own_pids",
    "own_network",
    "own_ipc",
    "own_proc",
    "pid_limit",
    "read_only_files",
    "private_folder",
    "rlimits",
    "no_capabilities",
    "no_new_privs",
    "seccomp",
    "own_devices",
    "freezer",
    "landlock",
    "bubblewrap",
    "cgroup",
    "outputs_in_place",
)
"""Names of the layers around a worker (`layers`), in the order of the bits of its greeting."""


def bits_of(layers: Collection[str]) -> bytes:
    """Return layers as a greeting that `layers_of` reads."""
    bits = sum(1 << i for i, name in enumerate(LAYERS) if name in layers)
    return bits.to_bytes(WORD_BYTES, "little")


def layers_of(greeting: bytes) -> tuple[str, ...]:
    """Return the layers that a greeting names."""
    bits = int.from_bytes(greeting, "little")
    return tuple(name for i, name in enumerate(LAYERS) if bits >> i & 1)


@dataclass(frozen=True)
class TensorSpec:
    """A tensor in shared memory; contiguous."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """The number of bytes without padding."""
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class View:
    """An input as a call gets it: elements of one of the storages of its slot."""

    storage: int
    """Index of the storage in the slot; several inputs may have the same."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements."""
    offset: int
    """Offset in elements, from the first byte of the storage."""
    wants_grad: bool = False
    """The flag `requires_grad`, which calls under `no_grad` can still see."""


@dataclass(frozen=True)
class Layout:
    """Layout of tensors in a ring: weights, then input slots, then output slots.

    An input slot holds storages, and calls get views of them: inputs keep their strides, and what
    they share. Behind the slots a GPU's ring has an arena, from which a worker's calls take their
    memory: an output that lies there need not be copied into its slot.
    """

    weights: tuple[TensorSpec, ...]
    storages: tuple[TensorSpec, ...]
    """Storages of one input slot, each flat."""
    outputs: tuple[TensorSpec, ...]
    num_slots: int
    inputs: tuple[View, ...] = ()

    @property
    def input_start(self) -> int:
        """The first byte of input slot 0."""
        return _padded(self.weights)

    @property
    def input_bytes(self) -> int:
        """The bytes of one input slot."""
        return _padded(self.storages)

    @property
    def output_start(self) -> int:
        """The first byte of output slot 0."""
        return self.input_start + self.num_slots * self.input_bytes

    @property
    def output_bytes(self) -> int:
        """The bytes of one output slot."""
        return _padded(self.outputs)

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole ring; at least one page, so that it can be mapped."""
        return max(4096, self.output_start + self.num_slots * self.output_bytes)


def offsets(specs: tuple[TensorSpec, ...]) -> list[int]:
    """Return the start of each tensor inside its slot."""
    starts: list[int] = []
    position = 0
    for spec in specs:
        starts.append(position)
        position += _round_up(spec.num_bytes)
    return starts


def _padded(specs: tuple[TensorSpec, ...]) -> int:
    return sum(_round_up(spec.num_bytes) for spec in specs)


def _round_up(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def arguments(tensors: Sequence[Any], constants: Mapping[int, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call: tensors in their order, constants in their places."""
    given = dict(zip(tensor_places(len(tensors), constants), tensors, strict=True)) | dict(
        constants
    )
    return tuple(given[place] for place in sorted(given))


def tensor_places(count: int, constants: Mapping[int, Any]) -> list[int]:
    """Return the places of so many tensors in a call, beside constants."""
    return [place for place in range(count + len(constants)) if place not in constants]


@dataclass(frozen=True)
class Job:
    """A job: what the judge tells a worker before it has a source; judge to worker only."""

    device: str
    """A device class: `cpu`, `cuda` or `fake`."""
    entry: str
    """Name that the source defines: `Model`, `ModelNew`; empty for a worker that computes
    nothing."""
    init_inputs: str
    """Literal of the constructor's arguments."""
    weight_names: tuple[str, ...]
    """State-dict keys of the tensors in the ring's weights region."""
    layout: Layout
    seed: int
    memory_bytes: int
    cpu_s: int | None
    """Largest processor time in seconds; None for our own workers, which serve many candidates."""
    core: int | None
    """Core to stay on; None leaves the choice free."""
    folder: str
    """Private folder of this worker, unless it has a file system of its own."""
    ring_bytes: int
    """Bytes of the whole shared memory, with the arena."""
    allow_tf32: bool
    """True if float32 products may be computed in TF32. The precision class decides, so that no
    candidate gains by merely switching it on."""
    practice: bytes = b""
    """On a GPU: the reference's source (`packed_source`), to be run once while the worker waits for
    a candidate."""
    in_place: bool = False
    """True if outputs stay in the worker's own memory, where the judge reads them. The judge found
    that it can when it met its first worker."""
    constants: str = "{}"
    """Literal of a call's arguments that are no tensors, by their places."""
    builds_for: str = ""
    """A device class for which the source is only run to compile, on a machine without the device;
    empty for a worker that is judged."""
    problem: bytes = b""
    """The packed source of the problem. A worker that builds runs it, too, for the arguments of
    constructor and call."""
    trains: bool | None = None
    """True puts the module into training mode, False into evaluation mode; None leaves it as it
    is."""

    def encode(self) -> bytes:
        """Return the job as text that `decode` reads."""
        return repr(
            (
                self.device,
                self.entry,
                self.init_inputs,
                self.weight_names,
                tuple(
                    tuple((s.dtype, s.shape) for s in group)
                    for group in (self.layout.weights, self.layout.storages, self.layout.outputs)
                ),
                tuple(astuple(each) for each in self.layout.inputs),
                self.layout.num_slots,
                self.seed,
                self.memory_bytes,
                self.cpu_s,
                self.core,
                self.folder,
                self.ring_bytes,
                self.allow_tf32,
                self.practice,
                self.in_place,
                self.builds_for,
                self.problem,
                self.constants,
                self.trains,
            )
        ).encode("utf-8", "surrogatepass")

    @classmethod
    def decode(cls, content: bytes) -> Job:
        """Return the job that `encode` wrote; called in the worker, on what the judge wrote."""
        import ast

        (
            device,
            entry,
            init_inputs,
            names,
            groups,
            inputs,
            num_slots,
            seed,
            memory,
            cpu,
            core,
            folder,
            ring_bytes,
            allow_tf32,
            practice,
            in_place,
            builds_for,
            problem,
            constants,
            trains,
        ) = ast.literal_eval(content.decode("utf-8", "surrogatepass"))
        specs = [tuple(TensorSpec(dtype, shape) for dtype, shape in group) for group in groups]
        return cls(
            device=device,
            entry=entry,
            init_inputs=init_inputs,
            weight_names=names,
            layout=Layout(
                specs[0], specs[1], specs[2], num_slots, tuple(View(*each) for each in inputs)
            ),
            seed=seed,
            memory_bytes=memory,
            cpu_s=cpu,
            core=core,
            folder=folder,
            ring_bytes=ring_bytes,
            allow_tf32=allow_tf32,
            practice=practice,
            in_place=in_place,
            builds_for=builds_for,
            problem=problem,
            constants=constants,
            trains=trains,
        )
