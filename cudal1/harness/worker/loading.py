"""Make a candidate's module from its source, and tensors over the shared memory.

Threat: as in `shim`, which calls all of this.
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

from cudal1.harness.shared import wire
from cudal1.harness.shared.packed_source import unpacked
from cudal1.harness.shared.seeding import seed_others
from cudal1.harness.shared.weights import load_by_name
from cudal1.harness.shared.wire import Job, Layout, TensorSpec, View
from cudal1.harness.worker.engine import Engine

MODULE, REFERENCE = "candidate", "Model"
"""Module name of an imported source, and the class that a problem's source defines."""


def load(
    job: Job, source: bytes, ring: torch.Tensor, engine: Engine
) -> tuple[Callable[..., Any], Callable[[], str]]:
    """Return the module to call, and a function that loads the ring's weights into it.

    The module has the weights that its constructor draws under the job's seed, until the judge has
    others loaded. Loading takes the weights that the module has by the reference's names and
    shapes. All else in the module keeps its value; its outputs decide. The function returns what to
    say to people of the names that the module lacks. A job without an entry gets a module that
    computes nothing.
    """
    if not job.entry:
        slots, count = outputs(ring, job.layout, 0), job.layout.num_slots
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
    """Run a packed source as a module, with its other files beside it.

    The source's file has one date in every process: Numba takes a file of another date for another
    file.
    """
    path = Path(f"{name}.py").absolute()
    main, files = unpacked(source)
    path.write_bytes(main.encode())
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
    """Run the reference on the first slot and forget the result; stop once `is_wanted` is true.

    A GPU's programs are loaded when they first run, each in up to a tenth of a second. A candidate
    runs many programs that the reference runs. The candidate may know what this leaves behind:
    reference, weights and these inputs are public. It runs without cuDNN, which remembers for good
    what it chose while another process had the device's memory.
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
        module, load_weights = load(practice, job.practice, ring, engine)
        load_weights()
        module(*arguments(engine, job, 0))


class _Until(TorchFunctionMode):
    """A mode in which operators run until something happens, and then raise."""

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

    Each storage begins where the tensor's own would. So strides and offsets mean what they mean
    elsewhere, and nothing else of the shared memory belongs to the storage.
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
    """Return tensors over the places of a slot's outputs."""
    start = layout.output_start + slot * layout.output_bytes
    return [
        view(ring, start + offset, spec)
        for offset, spec in zip(wire.offsets(layout.outputs), layout.outputs, strict=True)
    ]


def view(ring: torch.Tensor, start: int, spec: TensorSpec) -> torch.Tensor:
    """Return the tensor that begins at `start`, over the same bytes."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return ring[start : start + spec.num_bytes].view(dtype).view(spec.shape)
