"""A candidate's module from its source, and the tensors of the shared memory.

Threat: as in `shim`, where all of this is called.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cudal1 import source_files
from cudal1.harness import wire
from cudal1.harness.seeding import seed_others
from cudal1.harness.weights import load_by_name
from cudal1.harness.wire import Job, Layout, TensorSpec, View
from cudal1.harness.worker.engine import Engine

MODULE, REFERENCE = "candidate", "Model"
"""What a source is imported as, and what a problem's defines."""


def load(
    job: Job, source: bytes, ring: torch.Tensor, engine: Engine
) -> tuple[Callable[..., Any], Callable[[], str]]:
    """Return the module to call, and what loads the ring's weights into it.

    It has the weights that its constructor draws under the job's seed, until the judge has others
    loaded. Then those are taken that it has by the reference's names and shapes, and whatever else
    it has keeps its value; its outputs decide. Loading returns what to say to people of the names
    that it lacks.
    """
    if not job.entry:
        slots = outputs(ring, job.layout, 0)
        # on a GPU its bursts have no calls (`shim`)
        count = 1 if job.device == "cuda" else job.layout.num_slots
        values = itertools.cycle([[torch.ones_like(slot) for slot in slots] for _ in range(count)])
        return lambda *_: next(values), lambda: ""
    namespace = imported(source)
    make = getattr(namespace, job.entry, None)
    if make is None:
        raise AttributeError(f"the source defines no {job.entry}")
    torch.manual_seed(job.seed)
    seed_others(job.seed)
    module = make(*ast.literal_eval(job.init_inputs))
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{job.entry} must be a torch.nn.Module, not {type(module).__name__}")
    if job.trains is not None:
        module.train(job.trains)
    module = engine.place(module)
    starts = wire.offsets(job.layout.weights)
    given = {
        name: view(ring, start, spec)
        for name, start, spec in zip(job.weight_names, starts, job.layout.weights, strict=True)
    }
    return module, lambda: load_by_name(module, given)


def imported(source: bytes, name: str = MODULE) -> ModuleType:
    """Run a source as a module, with its other files beside it.

    Its file is of one age in every process: Numba takes another for another file.
    """
    path = Path(f"{name}.py").absolute()
    files = source_files.split(source.decode())
    path.write_bytes(files.pop(source_files.MAIN).encode())
    os.utime(path, (0, 0))
    for file_name, text in files.items():
        beside = path.parent / file_name
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(text.encode())
    if files:
        sys.path.append(str(path.parent))  # behind everything that is installed
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[name] = namespace
    spec.loader.exec_module(namespace)
    return namespace


def practise(job: Job, ring: torch.Tensor, engine: Engine, is_wanted: Callable[[], bool]) -> None:
    """Run the reference on what lies in the first slot, and forget it; stop when it is wanted.

    A GPU's programs are loaded when they are first run, each in up to a tenth of a second, and a
    candidate runs many that the reference does. What this leaves behind it may know: reference,
    weights and these inputs are public. Without cuDNN, which remembers for good what it chose while
    somebody else had the device's memory.
    """
    dtype = torch.get_default_dtype()
    with contextlib.suppress(Exception), torch.backends.cudnn.flags(enabled=False):
        _practised(job, ring, engine, is_wanted)
    torch.set_default_dtype(dtype)
    sys.modules.pop(MODULE, None)
    with contextlib.suppress(Exception):
        engine.finish()
        engine.forget()


def _practised(job: Job, ring: torch.Tensor, engine: Engine, is_wanted: Callable[[], bool]) -> None:
    with torch.no_grad(), _Until(is_wanted):
        practice = replace(job, entry=REFERENCE)
        module, load_weights = load(practice, job.practice.encode(), ring, engine)
        load_weights()
        module(*arguments(engine, job, 0))


class _Until(TorchFunctionMode):
    """Lets operators run until something happens."""

    def __init__(self, has_happened: Callable[[], bool]) -> None:
        super().__init__()
        self._has_happened = has_happened

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._has_happened():
            raise InterruptedError
        return func(*args, **(kwargs or {}))


def arguments(engine: Engine, job: Job, slot: int) -> tuple[Any, ...]:
    """Return the arguments of a call: the inputs of a slot, and constants in their places."""
    return wire.arguments(inputs(engine, job.layout, slot), ast.literal_eval(job.constants))


def inputs(engine: Engine, layout: Layout, slot: int) -> list[torch.Tensor]:
    """Return the inputs of a slot as the problem's generator lays them out.

    Each storage begins where the tensor's own would: strides and offsets mean what they mean
    elsewhere, and nothing else of the shared memory belongs to it.
    """
    start = layout.input_start + slot * layout.input_bytes
    storages = [
        engine.part(start + offset, spec.num_bytes)
        for offset, spec in zip(wire.offsets(layout.storages), layout.storages, strict=True)
    ]
    return [window(storages[each.storage], each) for each in layout.inputs]


def window(storage: torch.Tensor, view: View) -> torch.Tensor:
    """Return a view of a storage that is given as bytes."""
    dtype: torch.dtype = getattr(torch, view.dtype)
    shown = storage.view(dtype).as_strided(view.shape, view.strides, view.offset)
    return shown.requires_grad_() if view.wants_grad else shown


def outputs(ring: torch.Tensor, layout: Layout, slot: int) -> list[torch.Tensor]:
    """Return the places of a slot's outputs."""
    start = layout.output_start + slot * layout.output_bytes
    return [
        view(ring, start + offset, spec)
        for offset, spec in zip(wire.offsets(layout.outputs), layout.outputs, strict=True)
    ]


def view(ring: torch.Tensor, start: int, spec: TensorSpec) -> torch.Tensor:
    """The tensor that begins there, over the same bytes."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return ring[start : start + spec.num_bytes].view(dtype).view(spec.shape)
