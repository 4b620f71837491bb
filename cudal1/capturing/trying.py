"""Try a problem file against the program's own module, in the program's process."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cudal1.capturing.call import Call, tensors_in
from cudal1.capturing.literals import shapes
from cudal1.capturing.refusal import CaptureError
from cudal1.errors import describe
from cudal1.files import source_files

if TYPE_CHECKING:
    import torch

SEED = 0
REMEDY = "keep the values of small tensors with data=True (--data)"
"""The remedy where generated inputs do not fit."""


def fault_of(text: str, call: Call) -> str | None:
    """Return why a problem file does not do what the program's module does; None where it does.

    It is run here, in the program's process. It gets the module's weights; both are called with
    the file's inputs, and random numbers begin alike.

    Raises:
        CaptureError: the program's own module cannot be judged on generated inputs.
    """
    inputs: list[Any] = []
    found: list[Any] = []
    fault = None
    try:
        with undisturbed(), _imported(text) as problem:
            model = problem.Model(*problem.get_init_inputs())
            if shapes(model) != shapes(call.module):
                return "a new module has other weights than the program's own"
            model.load_state_dict(call.module.state_dict())
            own = next(iter(call.module.state_dict().values()), None)
            device = "cpu" if own is None else own.device
            inputs = [each.to(device) for each in problem.get_inputs()]
            model.to(device)
            found = _called(model, ([each.clone() for each in inputs], {}))
    except Exception as error:  # noqa: BLE001 -- the program's own code may raise anything
        fault = f"the file raises {describe(error)}"
    if not inputs:
        return fault
    wanted, again = _expected(call, inputs)
    if not _alike(wanted, again):
        raise CaptureError(
            "it draws random numbers in training mode (dropout?); call .eval() before it"
            if call.is_training
            else "it draws random numbers; capture the part that draws none"
        )
    finite = all(bool(each.isfinite().all()) for each in wanted if each.is_floating_point())
    if call.is_finite and not finite:
        raise CaptureError(
            "with generated inputs it gives NaN or infinities, and with the program's it did not; "
            f"{REMEDY}"
        )
    if fault is None and not _alike(found, wanted):
        return "the file computes something else than the program's module"
    return fault


def _expected(call: Call, inputs: list[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what the program's module returns for some inputs, under two random states.

    The module's state is the same afterwards.

    Raises:
        CaptureError: it raises.
    """
    import torch

    module = call.module
    modes = {each: each.training for each in module.modules()}
    kept = {key: each.clone() for key, each in module.state_dict().items()}
    if module.training != call.is_training:
        module.train(call.is_training)
    autocast = torch.autocast(
        inputs[0].device.type,
        dtype=getattr(torch, call.autocast or "bfloat16"),
        enabled=call.autocast is not None,
    )
    found: list[list[torch.Tensor]] = []
    try:
        with undisturbed(), autocast:
            for seed in (SEED, SEED + 1):
                given = call.filled([each.clone() for each in inputs])
                found.append(_called(module, given, seed))
                module.load_state_dict(kept)
    except Exception as error:  # the program's own code may raise anything
        raise CaptureError(
            f"with generated inputs it raises {describe(error)}: its inputs depend on each other; "
            f"{REMEDY}"
        ) from error
    finally:
        module.load_state_dict(kept)
        for each, mode in modes.items():
            each.training = mode
    return found[0], found[1]


def _called(
    module: torch.nn.Module, given: tuple[Any, dict[str, Any]], seed: int = SEED
) -> list[torch.Tensor]:
    import torch

    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            return [each.detach().clone() for each in tensors_in(module(*given[0], **given[1]))]
    finally:
        torch.random.set_rng_state(state)


def _alike(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Return whether outputs are equal, but for the order in which sums are taken."""
    import torch

    if [(each.shape, each.dtype) for each in first] != [(e.shape, e.dtype) for e in second]:
        return False
    return all(
        torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


@contextmanager
def _imported(text: str) -> Iterator[ModuleType]:
    """Import a problem file from a folder of its own, and forget it afterwards."""
    name = "cudal1_captured"
    with tempfile.TemporaryDirectory(prefix="cudal1-capture-") as folder:
        for path, content in source_files.split(text).items():
            file = Path(folder, path or f"{name}.py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, Path(folder, f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        before = set(sys.modules)
        sys.modules[name] = module
        sys.path.append(folder)
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            sys.path.remove(folder)
            for each in {name, *(n for n in set(sys.modules) - before if _is_in(n, folder))}:
                sys.modules.pop(each, None)


def _is_in(name: str, folder: str) -> bool:
    return str(getattr(sys.modules[name], "__file__", "") or "").startswith(folder)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the program's random numbers and default dtype as they are."""
    import torch

    state, default = torch.random.get_rng_state(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.random.set_rng_state(state)
        torch.set_default_dtype(default)
