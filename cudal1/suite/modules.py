"""A module of a package as a problem: `package.module:Class`, with inputs from a file.

Nothing of the package is imported here, nor is the file run: both are read as text. The problem's
own process imports the package where it is installed. A package in another folder is not imported
at all: its modules become files of the problem, like those beside a problem in a folder.
"""

from __future__ import annotations

import ast
import difflib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.files.source_files import cut, join
from cudal1.files.source_folder import modules_for
from cudal1.files.text_file import mode_of, read_python
from cudal1.origin import Origin, source_id_in, with_origin
from cudal1.problem import DeviceClass, Problem
from cudal1.suite.loader import problem_of

SPELLED = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".npy", ".npz", ".bin")
"""Endings of files that run code where they are read."""
FORM = "get_inputs(), which returns the list of one call's arguments"


def is_module(typed: Path) -> bool:
    """Return whether what a person typed names a class of a module, and no file."""
    return SPELLED.fullmatch(str(typed)) is not None and not mode_of(typed)


def remedy_for(reason: str) -> str:
    """Return the remedy for a reference that could not be tried, as a part of a message.

    The reason is a problem's own words, so only the remedy depends on it.
    """
    if "required positional argument" in reason or "required keyword-only argument" in reason:
        if "forward()" in reason:
            return "; return all arguments of a call from get_inputs()"
        if "__init__()" in reason:
            return "; return the constructor's arguments from get_init_inputs()"
    if re.search(r"CUDA (driver|error)|NVIDIA driver|with CUDA|No CUDA GPUs", reason):
        return "; judge it where there is a GPU, with --device cuda"
    return ""


def load_module(
    typed: Path, *, inputs: Path | None, folder: Path | None, device_class: DeviceClass
) -> Problem:
    """Return the problem of a class with inputs from a file.

    The file is Python and defines `get_inputs`. It may define `get_init_inputs`, the constructor's
    arguments. Either may return a dictionary: arguments by name. Where `get_init_inputs` calls
    something, such as a configuration's class, `Model` takes no arguments and makes its own. The
    text names the class as its origin, unless another module defines it.

    Args:
        typed: `package.module:Class`.
        inputs: the file with example inputs.
        folder: where the package lies; None where it is installed.
        device_class: the class of devices that the problem is judged on.

    Raises:
        SuiteError: the module, class, file or a function in it is not there; the message says what
            to give.
    """
    found = SPELLED.fullmatch(str(typed))
    assert found is not None
    module, name = found["module"], found["name"]
    if inputs is None:
        raise SuiteError(
            f"{typed}: has no example inputs; give --inputs FILE, a Python file that defines {FORM}"
        )
    given = _read_inputs(inputs)
    others: dict[str, str] = {}
    if folder is None:
        defining, version = _installed(module, name, typed), _version(module)
    else:
        others, version = _texts(folder, module), ""
        defining = _text_among(others, folder, module, name, typed)
    main = _text(given, module, name, version, inputs)
    text = join(main, others) if others else main
    source_id = source_id_in(defining, name)
    if source_id is not None:
        text = with_origin(text, Origin(replaces=str(typed), source_id=source_id))
    return problem_of(text, Path(name), device_class=device_class)


def _read_inputs(path: Path) -> str:
    if path.suffix in PICKLED:
        raise SuiteError(
            f"{path}: is data that may run code where it is read; give a Python file that defines "
            f"{FORM}"
        )
    text = read_python(path, raising=SuiteError)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SuiteError(f"{path}: is no Python ({error}); define {FORM}") from error
    if _function(tree, "get_inputs") is None:
        raise SuiteError(f"{path}: has no get_inputs; define {FORM}")
    return cut(text)[0]


def _installed(module: str, name: str, typed: Path) -> str:
    """Return the text of an installed module, with the class in it; of one in C none."""
    spec = _found(module, sys.path)
    if spec is None:
        top = module.partition(".")[0]
        is_there = _found(top, sys.path) is not None
        raise SuiteError(
            f"{typed}: {top} has no module {module}; check its name"
            if is_there
            else f"{typed}: there is no installed module {top}; install it, or give --path FOLDER, "
            "the folder that holds it"
        )
    origin = Path(spec.origin or "")
    if not _is_readable(origin):
        raise SuiteError(
            f"{typed}: lies in {origin.parent}, which workers may not read; give --path FOLDER, "
            "the folder that holds it, or install it without -e"
        )
    if origin.suffix != ".py":
        return ""
    text = read_python(origin, raising=SuiteError)
    _require_class(text, name, typed)
    return text


def _version(module: str) -> str:
    """Return `package version` of an installed module, as a part of a comment."""
    top = module.partition(".")[0]
    with suppress(importlib.metadata.PackageNotFoundError):
        return f" ({top} {importlib.metadata.version(top)})"
    return ""


def _found(module: str, path: Sequence[str]) -> ModuleSpec | None:
    """Return the place of a module; nothing is imported, not even its package."""
    spec = None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:number]), list(path))
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _is_readable(file: Path) -> bool:
    """Return whether a worker may read a module's file: it lies where packages are installed."""
    prefixes = [Path(each).resolve() for each in (sys.prefix, sys.base_prefix)]
    path = file.resolve()
    return any(path.is_relative_to(each / "lib") for each in prefixes) or any(
        part in ("site-packages", "dist-packages") for part in path.parts
    )


def _texts(folder: Path, module: str) -> dict[str, str]:
    """Return the texts of a module in a folder and of the others that it needs, by path."""
    if not folder.is_dir():
        raise SuiteError(f"{folder}: is no folder; give --path the folder that holds {module}")
    return modules_for(folder, f"import {module}")


def _text_among(texts: dict[str, str], folder: Path, module: str, name: str, typed: Path) -> str:
    """Return the text of a module, out of those of its folder, once the class is found in it."""
    place = module.replace(".", "/")
    text = texts.get(f"{place}.py", texts.get(f"{place}/__init__.py"))
    if text is None:
        raise SuiteError(
            f"{typed}: {folder} holds no {place}.py; give --path the folder that holds "
            f"{module.partition('.')[0]}"
        )
    _require_class(text, name, typed)
    return text


def _require_class(text: str, name: str, typed: Path) -> None:
    """Refuse a module that surely does not define a class."""
    if re.search(rf"\b{name}\b|import\s*\(?\s*\*|__getattr__|globals|sys\.modules|exec", text):
        return
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        classes = [n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)]
        near = difflib.get_close_matches(name, classes, n=1, cutoff=0.5)
        hint = f"; did you mean {str(typed).partition(':')[0]}:{near[0]}?" if near else ""
        raise SuiteError(f"{typed}: the module has no class {name}{hint or '; check its name'}")


def _text(given: str, module: str, name: str, version: str, inputs: Path) -> str:
    """Return the main file of the problem."""
    tree = ast.parse(given)
    makes, calls = _function(tree, "get_init_inputs"), _function(tree, "get_inputs")
    assert calls is not None
    by_name = _returned(calls)
    lines = [given.rstrip("\n"), "", "", f"# {module}:{name}{version}"]
    wraps_init = makes is not None and _makes_objects(makes)
    if not wraps_init and not isinstance(by_name, ast.Dict):
        lines.append(f"from {module} import {name} as Model")
    else:
        lines += [f"from {module} import {name} as Original", "", "", "class Model(Original):"]
        if wraps_init:
            lines += _INIT
        if isinstance(by_name, ast.Dict):
            lines += _forward(by_name, inputs)
    if makes is None:
        lines += ["", "", "def get_init_inputs():", "    return []"]
    elif wraps_init:
        lines += ["", "", "_constructor_inputs = get_init_inputs"]
        lines += ["", "", "def get_init_inputs():", "    return []"]
    if isinstance(by_name, ast.Dict):
        lines += ["", "", "_named_inputs = get_inputs", "", "", "def get_inputs():"]
        lines.append("    return list(_named_inputs().values())")
    return "\n".join(lines) + "\n"


_INIT = [
    "    def __init__(self):",
    "        given = _constructor_inputs()",
    "        if isinstance(given, dict):",
    "            super().__init__(**given)",
    "        else:",
    "            super().__init__(*given)",
]


def _forward(returned: ast.Dict, inputs: Path) -> list[str]:
    names = [each.value for each in returned.keys if isinstance(each, ast.Constant)]
    named = [each for each in names if isinstance(each, str) and each.isidentifier()]
    if len(named) != len(returned.keys):
        raise SuiteError(
            f"{inputs}: get_inputs returns a dictionary, and some key is no name of an argument; "
            "write each key as text"
        )
    shown = ", ".join(f"{each}={each}" for each in named)
    return [
        "",
        f"    def forward({', '.join(['self', *named])}):",
        f"        return super().forward({shown})",
    ]


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """Return what the last statement of a function returns."""
    last = function.body[-1]
    return last.value if isinstance(last, ast.Return) else None


def _makes_objects(function: ast.FunctionDef) -> bool:
    """Return whether constructor arguments are no literals, or given by name."""
    returned = _returned(function)
    return isinstance(returned, ast.Dict) or any(
        isinstance(node, ast.Call) for node in ast.walk(function)
    )
