"""What runs around a candidate inside its own process: limits, loading, and the loop of bursts.

Threat: once the candidate's module is imported, every line here may be patched by it. Nothing this
file reports is believed; it exists so that honest candidates are called correctly and failures get
a readable reason.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import mmap
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from cudal1.harness import wire
from cudal1.harness.wire import Job, Layout, State, TensorSpec, Word

PR_SET_NO_NEW_PRIVS = 38
MAX_FILE_BYTES = 256 << 20
MAX_OPEN_FILES = 256
MAX_PROCESSES = 512


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def warm_up() -> None:
    """Load what every worker needs; start no thread.

    glibc is told to keep what it was given: otherwise whether a tensor's memory is mapped anew at
    each call depends on the history of the heap, and two processes that run the same code differ by
    up to a factor of two.
    """
    import torch.nn.functional  # noqa: F401

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)


def run(control_fd: int, ring_fd: int, go_fd: int, job_fd: int, layers: set[str]) -> None:
    """Serve bursts until the process is killed; failures are noted and end the process."""
    control = memoryview(mmap.mmap(control_fd, wire.CONTROL_BYTES))
    words = control[: wire.TEXT_OFFSET].cast("Q")
    job = Job.decode(_read_all(job_fd))
    ring = memoryview(mmap.mmap(ring_fd, job.layout.total_bytes))
    os.chdir(job.folder)
    layers |= _limit(job) | {"private_folder"}
    go = _close_others(go_fd)
    words[Word.LAYERS] = sum(1 << i for i, name in enumerate(wire.LAYERS) if name in layers)
    stage = State.BUILD_FAILED
    # The one broad except of the repository: a candidate may raise anything at all, and whatever it
    # is, it is the candidate's failure and a line for people.
    try:
        module = _load(job, ring)
        inputs = [_views(ring, job.layout, slot, "inputs") for slot in range(job.layout.num_slots)]
        outputs = [_views(ring, job.layout, slot, "outputs") for slot in range(job.layout.num_slots)]
        words[Word.STATE] = State.READY
        stage = State.CALL_FAILED
        with torch.no_grad():
            while True:
                os.read(go, 8)
                for slot in range(words[Word.NUM_CALLS]):
                    _store(module(*inputs[slot]), outputs[slot])
                    words[Word.DONE] += 1
    except _WrongOutputError as error:
        _report(control, words, State.WRONG_OUTPUT, str(error))
    except BaseException as error:  # noqa: BLE001
        _report(control, words, stage, _described(error))
    os._exit(1)


class _WrongOutputError(Exception):
    """The output cannot be stored where the reference's goes."""


def _store(result: Any, slots: list[torch.Tensor]) -> None:
    results = list(result) if isinstance(result, tuple | list) else [result]
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
        slot.copy_(value)


def _load(job: Job, ring: memoryview) -> Any:
    if not job.entry:
        return _empty_module(job.layout)
    path = Path(job.folder) / "candidate.py"
    path.write_bytes(job.source.encode("utf-8", "surrogatepass"))
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None and spec.loader is not None
    namespace = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = namespace
    spec.loader.exec_module(namespace)
    make = getattr(namespace, job.entry, None)
    if make is None:
        raise AttributeError(f"the source defines no {job.entry}")
    torch.manual_seed(job.seed)
    module = make(*ast.literal_eval(job.init_inputs))
    _load_weights(module, job, ring)
    return module


def _load_weights(module: Any, job: Job, ring: memoryview) -> None:
    """Give the module the reference's weights where names and shapes agree.

    Where they do not, the module keeps what it drew under the public seed, and its outputs decide.
    """
    state = module.state_dict()
    starts = wire.offsets(job.layout.weights)
    given = {
        name: _view(ring, start, spec)
        for name, start, spec in zip(job.weight_names, starts, job.layout.weights, strict=True)
    }
    if {name: (t.shape, t.dtype) for name, t in state.items()} == {
        name: (t.shape, t.dtype) for name, t in given.items()
    }:
        module.load_state_dict(given)


def _empty_module(layout: Layout) -> Any:
    """A module that returns constants: what a burst costs without any work."""
    constants = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in layout.outputs]
    return lambda *_: constants


def _views(ring: memoryview, layout: Layout, slot: int, which: str) -> list[torch.Tensor]:
    specs, start, size = (
        (layout.inputs, layout.input_start, layout.input_bytes)
        if which == "inputs"
        else (layout.outputs, layout.output_start, layout.output_bytes)
    )
    return [
        _view(ring, start + slot * size + offset, spec)
        for offset, spec in zip(wire.offsets(specs), specs, strict=True)
    ]


def _view(ring: memoryview, start: int, spec: TensorSpec) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.num_bytes == 0:
        return torch.empty(spec.shape, dtype=dtype)
    flat = torch.frombuffer(ring[start : start + spec.num_bytes], dtype=dtype)
    return flat.view(spec.shape)


def _limit(job: Job) -> set[str]:
    """Bound what the process may take; returns the layers that hold."""
    if job.core is not None:
        os.sched_setaffinity(0, {job.core})
    with Path("/proc/self/statm").open() as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    for which, limit in (
        (resource.RLIMIT_AS, mapped + job.memory_bytes),
        (resource.RLIMIT_CPU, job.cpu_s),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        bounded = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(which, (bounded, bounded))
    os.environ.update(HOME=job.folder, TMPDIR=job.folder, TORCH_EXTENSIONS_DIR=job.folder)
    no_new_privs = ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    return {"rlimits"} | ({"no_new_privs"} if no_new_privs else set())


def _close_others(go_fd: int) -> int:
    """Keep one descriptor, as number 3; standard streams lead nowhere. Returns 3."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if go_fd != 3:
        os.dup2(go_fd, 3)
    os.closerange(4, 4096)
    return 3


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0)


def _described(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" (line {frame.lineno})" for frame in last if frame.name != "_store")
    return f"{type(error).__name__}: {error}{where}"


def _report(control: memoryview, words: memoryview, state: State, text: str) -> None:
    shown = text.encode("utf-8", "replace")[: wire.TEXT_BYTES]
    control[wire.TEXT_OFFSET : wire.TEXT_OFFSET + len(shown)] = shown
    words[Word.TEXT_LENGTH] = len(shown)
    words[Word.STATE] = state
