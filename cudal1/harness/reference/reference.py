"""Import a problem's source as a module like any other, and read what it defines.

The source is the user's own code, which admission has tried, and is trusted here
(docs/threat-model.md). It is imported from a file of its own: dataclasses, `torch.jit.script`,
Triton and tracebacks look for a module's name in `sys.modules`, for its file and for its source.
"""

from __future__ import annotations

import ast
import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cudal1.errors import SuiteError, describe
from cudal1.files import source_files
from cudal1.harness.shared.wire import arguments
from cudal1.problem import PROBLEM_NAMES, Problem

if TYPE_CHECKING:
    import torch

SCRATCH = "CUDAL1_SCRATCH"
"""Environment variable that names a folder, which another process removes when this one has
ended."""
PLAIN = (bool, int, float, str, type(None), tuple, list, dict)
"""Types of inputs that may be constants; items of tuples, lists and dicts must have these types,
too."""
MAX_SHOWN = 80
"""Characters of a value that a reason shows."""


@dataclass(frozen=True)
class Reference:
    """A problem's module and the inputs of its calls."""

    key: str
    """The problem's key, for people."""
    module: Callable[..., torch.nn.Module]
    init_inputs: list[Any]
    """Literals, in the order of the constructor's arguments."""
    get_inputs: Callable[[], Any]
    constants: dict[int, Any] = field(default_factory=dict[int, Any])
    """Inputs that are no tensors, by their place in a call; filled when inputs are drawn."""

    def draw(self) -> Any:
        """Return the tensors of one call; a result that is no list or tuple is returned as it is.

        Plain Python values among the inputs, such as a factor, are `constants`: models of `make`
        get them in their places, and a worker's job carries them.

        Raises:
            SuiteError: a plain value changes from draw to draw.
        """
        drawn = self.get_inputs()
        if not isinstance(drawn, list | tuple):
            return drawn
        constants = {place: value for place, value in enumerate(drawn) if _is_plain(value)}
        if not self.constants:
            self.constants.update(constants)
        if repr(self.constants) != repr(constants):
            raise SuiteError(f"{self.key}: {_changing(self.constants, constants)}")
        return [value for place, value in enumerate(drawn) if place not in constants]

    def make(self) -> torch.nn.Module:
        """Return a new module with freshly drawn weights, which want no gradients.

        Raises:
            SuiteError: `Model` is not a module, or does not take the arguments that the problem
                gives.
        """
        import torch

        try:
            made = self.module(*self.init_inputs)
        except TypeError as error:
            if is_args_and_kwargs(self.init_inputs):
                raise SuiteError(
                    "get_init_inputs() returns the form [[], {}], positional and keyword "
                    f"arguments, and Model takes no such two ({error}); return the list of the "
                    "constructor's arguments, in order"
                ) from error
            raise
        if not isinstance(made, torch.nn.Module):
            raise SuiteError("Model is not a torch.nn.Module")
        made.register_forward_pre_hook(lambda _, given: arguments(given, self.constants))
        return made.requires_grad_(False)


def _is_plain(value: object) -> bool:
    """Return whether a value can be sent as a literal."""
    if type(value) not in PLAIN:
        return False
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _changing(before: Mapping[int, Any], now: Mapping[int, Any]) -> str:
    for place in sorted({*before, *now}):
        if place not in before or place not in now:
            return f"input {place} is a tensor in some draws and not in others; return a tensor"
        if repr(before[place]) != repr(now[place]):
            first, later = (repr(each[place])[:MAX_SHOWN] for each in (before, now))
            return (
                f"input {place} changes from draw to draw ({first}, then {later}); return it as a "
                "tensor, or the same in every draw"
            )
    raise AssertionError("they are equal")


def load_reference(problem: Problem) -> Reference:
    """Import a problem's source.

    Raises:
        SuiteError: the source lacks a name, or its constructor's arguments cannot be sent to a
            worker. Other errors are the source's own.
    """
    try:
        module = imported(problem.source, f"problem_{problem.id}")
    except ModuleNotFoundError as error:
        raise SuiteError(
            f"{problem.key}: its reference raises {describe(error)}; install it, or give a problem "
            "of several files as a folder"
        ) from error
    for name in PROBLEM_NAMES:
        if not callable(getattr(module, name, None)):
            raise SuiteError(f"{problem.key}: defines no {name}")
    given: object = module.get_init_inputs()
    if not isinstance(given, list | tuple):
        raise SuiteError(
            f"{problem.key}: get_init_inputs() must return a list of the constructor's arguments, "
            f"in order, not {type(given).__name__}"
        )
    init_inputs: list[Any] = list(given)
    try:
        ast.literal_eval(repr(init_inputs))
    except (ValueError, SyntaxError) as error:
        shown = repr(init_inputs)[:MAX_SHOWN]
        raise SuiteError(
            f"{problem.key}: get_init_inputs() must return literals, not {shown}"
        ) from error
    return Reference(problem.key, module.Model, init_inputs, module.get_inputs)


def is_args_and_kwargs(init_inputs: list[Any]) -> bool:
    """Return whether a list looks like positional arguments and keyword arguments."""
    return (
        len(init_inputs) == 2
        and isinstance(init_inputs[0], list | tuple)
        and isinstance(init_inputs[1], dict)
        and all(isinstance(key, str) for key in init_inputs[1])
    )


def imported(source: str, name: str) -> ModuleType:
    """Import a source from files of its own, under a name that nothing else has.

    The source's other files are found by their own names, after all installed modules.
    """
    folder = _new_folder()
    for path, text in source_files.split(source).items():
        file = folder / (path or f"{name}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        # no translation of line ends: the text runs as it is
        file.write_bytes(text.encode())
        if path:
            _forget(path)
    if len(list(folder.iterdir())) > 1:
        sys.path.append(str(folder))
    file = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _forget(path: str) -> None:
    """Forget a module of the same name that another problem's folder had."""
    name = path.partition("/")[0].removesuffix(".py")
    found = sys.modules.get(name)
    files = [getattr(found, "__file__", None), *getattr(found, "__path__", ())]
    if any(file and Path(file).parent.name.startswith("problem-") for file in files):
        for each in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[each]


def _new_folder() -> Path:
    """Make a folder that lives as long as this process: Python looks for source at any time."""
    scratch = os.environ.get(SCRATCH)
    folder = tempfile.mkdtemp(prefix="problem-", dir=scratch)
    if scratch is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
