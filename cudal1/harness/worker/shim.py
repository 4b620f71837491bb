"""Run a candidate inside its own process: begin the process, and serve bursts in a loop.

Threat: once the candidate's module is imported, it may patch every line here. Nothing that this
file reports is believed. The file exists so that honest candidates are called correctly and
failures get a readable reason. Inputs are views of the shared memory. The judge keeps its own
originals, and sees when an input was written to. Outputs are handed over at once, inside the
judge's interval, so that lazy, expanded or strided outputs gain nothing. In some bursts they are
handed over only after the last call, so that a buffer handed out twice shows. Handing over is
saying where an output lies, so that there is no copy to be saved (`engine`).
"""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import select
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import EMPTY, HAND_OVER, HANDED_OVER, KEEP, Job, State, Word
from cudal1.harness.worker import building, builds, confinement, loading
from cudal1.harness.worker.engine import Engine, make_engine, open_descriptors
from cudal1.harness.worker.loading import load, practise
from cudal1.harness.worker.words import described, report, tell

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
DONE, AWAKE, PUBLISHED = int(Word.DONE), int(Word.AWAKE), int(Word.PUBLISHED)
"""Indices of words, as plain numbers for speed. A leaner loop of calls would be credited with what
this one costs."""
INDUCTOR = {
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""Variables that Inductor reads when it is imported. Without them each process would try what the
processor has (six seconds), compile headers (five seconds) and start a pool. Most processes never
come to compile."""
SPINS, YIELDS = 200, 50
"""Number of looks at the counter before each further look yields the core, and number of yields
before the engine may rest. By then other processes have the judge's core, and what a worker spins
counts as computed."""


def warm_up() -> None:
    """Load what every worker needs; start no thread.

    glibc is told to keep what it was given. Otherwise the history of the heap decides whether a
    tensor's memory is mapped anew at each call. Two processes that run the same code would differ
    by up to a factor of two.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for wanted in (1 << 30, 32 << 20):  # older versions take no more than the second
            if mallopt(M_MMAP_THRESHOLD, wanted):
                break
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    os.environ.update(INDUCTOR)


def serve(channel_fd: int, layers: set[str], device: str, nodes: list[str]) -> None:
    """Say hello, wait for a job, confine this process, greet, wait for a source, serve bursts."""
    here = ctypes.create_string_buffer(os.urandom(wire.TOKEN_BYTES), wire.TOKEN_BYTES)
    os.write(channel_fd, wire.HELLO.pack(ctypes.addressof(here), here.raw))
    layers |= confinement.own_mounts(layers, nodes)
    before = open_descriptors()
    engine = make_engine(device)
    control_fd, ring_fd, job_fd = given = _awaited_job(channel_fd, engine)
    needed = open_descriptors() - before - set(given)  # the driver's; nothing else was opened
    control = memoryview(mmap.mmap(control_fd, wire.CONTROL_BYTES))
    job = Job.decode(_content(job_fd))
    ring = engine.share(ring_fd, job)
    if job.in_place or device == "cuda":
        layers.add("outputs_in_place")
    _allow_tf32(job.allow_tf32)
    if job.core is not None:
        os.sched_setaffinity(0, {job.core})
    home, gained = confinement.confine_files(job.folder, layers)
    layers |= gained
    writable = [Path(home), *confinement.own_tmp(home)]
    os.chdir(home)
    os.environ.update({"HOME": home, "TMPDIR": home, **builds.places(home)})
    tempfile.tempdir = home  # tempfile reads TMPDIR once, and an import may have asked it
    channel = confinement.keep_only(channel_fd, needed)
    layers |= confinement.limit(memory_bytes=job.memory_bytes, cpu_s=job.cpu_s, device=device)
    layers |= confinement.renounce(writable, layers, nodes)
    os.write(channel, wire.bits_of(layers))
    # before a candidate is there: on a GPU this takes longer than a short call
    inputs = [loading.arguments(engine, job, slot) for slot in range(job.layout.num_slots)]
    if job.practice:
        practise(job, ring, engine, lambda: _has_word(channel))
        _allow_tf32(job.allow_tf32)
    source_fd, *built = _received(channel, 2)
    for descriptor in built:
        builds.unpack(descriptor, home)
    if job.builds_for:
        _build(job, home, _content(source_fd), control, channel)
    else:
        _work(job, home, _content(source_fd), control, ring, inputs, channel, engine)
    os._exit(1)


def _awaited_job(channel_fd: int, engine: Engine) -> list[int]:
    """Return the descriptors of a job; do what the judge asks for before it comes."""
    while not (descriptors := _received(channel_fd, 3)):
        engine.convolve()
    return descriptors


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _build(job: Job, home: str, source: bytes, control: memoryview, channel: int) -> None:
    """Compile what the source compiles, and hand the result over whenever the judge asks."""
    if not building.build(job, home, source, control):
        return
    control[: wire.TEXT_OFFSET].cast("Q")[Word.STATE] = State.READY
    while os.read(channel, 1) == HAND_OVER:
        _hand_over(channel, home, builds.UNHURRIED_S)


def _hand_over(channel: int, home: str, limit_s: float = builds.LIMIT_S) -> None:
    num_bytes = sum(builds.hand_over(file, home, limit_s) for file in _received(channel, 1))
    os.write(channel, HANDED_OVER.pack(num_bytes))


def _work(
    job: Job,
    home: str,
    source: bytes,
    control: memoryview,
    ring: torch.Tensor,
    inputs: list[tuple[Any, ...]],
    channel: int,
    engine: Engine,
) -> None:
    words = control[: wire.TEXT_OFFSET].cast("Q")
    places = control[wire.PLACES_OFFSET :].cast("Q")
    stage = State.BUILD_FAILED
    # A broad except: a candidate may raise anything at all. It is the candidate's failure, and a
    # line for people.
    try:
        call, load_weights = load(job, source, ring, engine)
        outputs = [loading.outputs(ring, job.layout, slot) for slot in range(job.layout.num_slots)]
        words[Word.STATE] = State.READY
        stage = State.CALL_FAILED
        weights = 0
        with torch.no_grad(), engine.calling():
            while said := os.read(channel, 1):
                if said == HAND_OVER:
                    _hand_over(channel, home)
                    continue
                if words[Word.WEIGHTS] != weights:
                    weights = words[Word.WEIGHTS]
                    tell(control, words, load_weights())
                if words[Word.ORDER] == EMPTY:
                    _empty_burst(words, engine)
                else:
                    _burst(words, places, call, inputs, outputs, engine, channel)
    except _WrongOutputError as error:
        report(control, words, State.WRONG_OUTPUT, str(error))
    except BaseException as error:  # noqa: BLE001
        report(control, words, stage, described(error))


def _burst(
    words: memoryview,
    places: memoryview,
    call: Callable[..., Any],
    inputs: list[tuple[Any, ...]],
    outputs: list[list[torch.Tensor]],
    engine: Engine,
    channel: int,
) -> None:
    count, done = words[Word.NUM_CALLS], words[DONE]
    if order := words[Word.ORDER]:
        engine.release()
        words[AWAKE] = done + count
        _await_inputs(words, done + count, engine)
        engine.begin()
        if order == KEEP:
            kept = [call(*inputs[slot]) for slot in range(count)]
            for slot in range(count):
                _check(kept[slot], outputs[slot])
                _store(kept[slot], outputs[slot], places, slot, engine)
        else:
            for slot in range(count):
                _copy(call(*inputs[slot]), outputs[slot], places, slot, engine)
        engine.finish()
        words[DONE] = done + count
        return
    for slot in range(count):
        if slot:
            os.read(channel, 1)  # sleep while the judge reads and writes: computing is counted
        engine.release()
        words[AWAKE] = done + slot + 1
        _await_inputs(words, done + slot + 1, engine)
        engine.begin()
        result = call(*inputs[slot])
        if not done:  # before any output is judged by its bytes
            _check(result, outputs[slot])
        _store(result, outputs[slot], places, slot, engine)
        engine.finish()
        words[DONE] = done + slot + 1
        del result


def _empty_burst(words: memoryview, engine: Engine) -> None:
    """Run a burst without its calls; the judge asks only the reference's worker for one.

    Where all calls are made at once on a GPU, our Python around each call is hidden by what the
    call computes. Subtracting that Python would be in vain, so nothing is done for each call.
    """
    words[AWAKE] = done = words[DONE] + words[Word.NUM_CALLS]
    _await_inputs(words, done, engine)
    engine.begin()
    engine.finish()
    words[DONE] = done


def _await_inputs(words: memoryview, num_published: int, engine: Engine) -> None:
    spins = 0
    while words[PUBLISHED] < num_published:
        spins += 1
        if spins > SPINS + YIELDS:
            engine.rest(spins - SPINS - YIELDS - 1)
        elif spins > SPINS:
            os.sched_yield()


class _WrongOutputError(Exception):
    """An output that is not of the kind that the reference's is."""


def _store(
    result: Any, slots: list[torch.Tensor], places: memoryview, number: int, engine: Engine
) -> None:
    if len(slots) == 1 and type(result) is torch.Tensor:
        places[number] = engine.store(result, slots[0])
        return
    start = number * len(slots)
    for index, (value, slot) in enumerate(zip(_listed(result), slots, strict=True), start):
        places[index] = engine.store(value, slot)


def _copy(
    result: Any, slots: list[torch.Tensor], places: memoryview, number: int, engine: Engine
) -> None:
    """Copy the outputs of a call to their slots: the next call may overwrite them."""
    _check(result, slots)
    start = number * len(slots)
    for index, (value, slot) in enumerate(zip(_listed(result), slots, strict=True), start):
        places[index] = engine.copy(value, slot)


def _check(result: Any, slots: list[torch.Tensor]) -> None:
    results = _listed(result)
    if len(results) != len(slots):
        raise _WrongOutputError(f"{len(results)} outputs where the reference has {len(slots)}")
    for value, slot in zip(results, slots, strict=True):
        if not isinstance(value, torch.Tensor):
            raise _WrongOutputError(f"an output of type {type(value).__name__}, not a tensor")
        if value.shape != slot.shape or value.dtype != slot.dtype:
            raise _WrongOutputError(
                f"an output of {value.dtype} {tuple(value.shape)} where the reference has "
                f"{slot.dtype} {tuple(slot.shape)}"
            )
        if value.device != slot.device:
            raise _WrongOutputError(f"an output that is not on {slot.device}")
        if value.layout is not torch.strided:
            raise _WrongOutputError(f"an output of layout {value.layout}, not a dense tensor")


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _has_word(channel_fd: int) -> bool:
    """Return whether the judge has said something."""
    return bool(select.select([channel_fd], [], [], 0)[0])


def _received(channel_fd: int, count: int) -> list[int]:
    """Return the descriptors that the judge sends, at most `count`; exit if the judge went away."""
    channel = socket.socket(fileno=os.dup(channel_fd))
    message, ancillary, _, _ = channel.recvmsg(16, socket.CMSG_SPACE(count * 4))
    if not message:
        os._exit(0)  # the judge went away, or needs no more workers
    descriptors = array.array("i")
    for _, _, payload in ancillary:
        descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
    channel.close()
    return list(descriptors)


def _content(descriptor: int) -> bytes:
    """Return all bytes of a file, and close it."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    return content
