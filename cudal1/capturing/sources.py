"""Cut a class out of its module, with the imports, helpers and base classes that it needs.

The unit is a statement at a module's top level. A class of an installed package takes statements of
its own module and imports the rest; a class of the user's own folder takes statements of all
modules there, for a worker cannot read that folder.
"""

from __future__ import annotations

import ast
import builtins
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from cudal1.capturing.refusal import CaptureError

MAX_LINES_INSTALLED = 400
"""Lines cut out of an installed module; a class that needs more is imported."""
MAX_LINES_LOCAL = 4000
"""Lines cut out of modules that are not installed; beyond that the modules are copied."""
MAX_COPIED = 200
"""Files of a package that are copied."""
OURS = {"torch", "Model", "get_inputs", "get_init_inputs"}
"""Names that a problem file gives its own meaning."""
BUILTIN = {*dir(builtins), "__name__", "__file__", "__doc__"}


class NotCutOut(Exception):
    """A class cannot be cut out of its module: it is imported, or its module copied."""


def is_installed(module: ModuleType) -> bool:
    """Return whether an interpreter finds a module where packages or its own library lie."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__.partition(".")[0] in sys.stdlib_module_names
    return is_installed_file(Path(file))


def is_installed_file(file: Path) -> bool:
    """Return whether a file lies where packages or the interpreter's own library lie."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = [Path(sysconfig.get_path(name)).resolve() for name in names]
    path = file.resolve()
    return any(path.is_relative_to(home) for home in homes) or "site-packages" in path.parts


def version_of(module: ModuleType) -> str:
    """Return `package version` of the distribution that a module is of; empty without one."""
    top = module.__name__.partition(".")[0]
    for name in (top, *importlib.metadata.packages_distributions().get(top, ())):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


@dataclass
class Text:
    """The part of a problem file that defines a class and what it needs."""

    future: bool = False
    """True if annotations are not evaluated."""
    imports: dict[str, None] = field(default_factory=dict[str, None])
    """Import lines, in order."""
    statements: list[str] = field(default_factory=list[str])
    copied: dict[str, str] = field(default_factory=dict[str, str])
    """Other files of the problem by path, where modules are copied."""
    taken: dict[str, Any] = field(default_factory=dict[str, Any])
    """Objects by the name that they have in the file."""
    is_imported: bool = False
    """True if the class itself is imported."""

    def take(self, name: str, value: Any, *, is_captured: bool = False) -> None:
        """Reserve a name.

        Raises:
            NotCutOut: the file has the name for another object.
        """
        is_own = value is sys.modules.get("torch") or is_captured
        if (name in OURS and not is_own) or self.taken.setdefault(name, value) is not value:
            raise NotCutOut(f"the name {name} has two meanings")


class Sources:
    """Collects what a problem file needs of the modules that the program has imported.

    Args:
        cls: the class that is captured.
        cuts: whether the class is cut out; otherwise it is imported, from a copy if need be.
        is_lean: whether names that only annotations have are left out. It saves imports, which
            take seconds in each worker; a class that reads its annotations needs them.
    """

    def __init__(self, cls: type, *, cuts: bool, is_lean: bool = False) -> None:
        self._cls = cls
        self._cuts = cuts
        self._is_lean = is_lean
        self._modules: dict[str, _Module] = {}
        self._seen: set[tuple[str, int]] = set()
        self._num_lines = 0
        self.text = Text(future=is_lean)
        if "." in cls.__qualname__:
            raise CaptureError(
                f"{cls.__qualname__} is defined inside a function or class; move it to the top "
                "level of its module"
            )
        home = sys.modules[cls.__module__]
        self._is_local = not is_installed(home)
        if cuts and cls.__module__.partition(".")[0] == "torch":
            raise NotCutOut("PyTorch's own classes are known by name")
        self.class_name = cls.__name__
        if cuts:
            self.class_name = self._cut_out(home, cls.__name__)
        else:
            self.text.is_imported = True
            self.class_name = self.name(cls, alias="Original" if cls.__name__ in OURS else None)

    def name(self, value: Any, *, alias: str | None = None) -> str:
        """Return the name of a class or function in the file, which imports or holds it.

        Raises:
            CaptureError: no name leads to it.
        """
        import torch

        home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        module = sys.modules.get(home or "")
        if module is None or not name.isidentifier() or getattr(module, name, None) is not value:
            raise CaptureError(
                f"{name or value!r} has no name at the top level of a module; give it one"
            )
        if module is builtins:
            return name
        if getattr(torch.nn, name, None) is value:
            return f"torch.nn.{name}"
        if is_installed(module):
            self._import(home or "", name, alias or name, value)
        elif self._cuts:
            self._take(module, name)
            return name
        else:
            self._copy(module)
            self._import(_own_name(module), name, alias or name, value)
        return alias or name

    def _cut_out(self, module: ModuleType, name: str) -> str:
        self._take(module, name)
        return name

    def _import(self, module: str, name: str, alias: str, value: Any) -> None:
        if self.text.taken.get(alias) is value and alias in self.text.taken:
            return
        self.text.take(alias, value)
        said = name if alias == name else f"{name} as {alias}"
        self.text.imports[f"from {module} import {said}"] = None

    def _take(self, module: ModuleType, name: str) -> None:
        """Take the statements that define a name at a module's top level, and all that they need.

        Raises:
            NotCutOut: a name cannot be traced, or there is too much of it.
        """
        read = self._read(module)
        places = read.defined.get(name)
        if places is None:
            self._found(module, name)
            return
        for place in places:
            if (module.__name__, place) in self._seen:
                continue
            statement = read.tree.body[place]
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._imported(module, statement, name)
                continue
            self._seen.add((module.__name__, place))
            for each in _defined(statement):
                value = getattr(module, each, None)
                self.text.take(each, value, is_captured=value is self._cls)
            if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(statement)):
                raise NotCutOut(f"{name} is imported relatively inside a block")
            for needed in read.needs(statement, is_lean=self._is_lean):
                if needed not in _defined(statement):
                    self._take(module, needed)
            self._add(read.segment(statement))

    def _add(self, segment: str) -> None:
        self._num_lines += segment.count("\n") + 1
        limit = MAX_LINES_LOCAL if self._is_local else MAX_LINES_INSTALLED
        if self._num_lines > limit:
            raise NotCutOut(f"it needs more than {limit} lines")
        self.text.statements.append(segment)

    def _read(self, module: ModuleType) -> _Module:
        if module.__name__ not in self._modules:
            read = self._modules[module.__name__] = _Module(module)
            self.text.future = self.text.future or read.is_future
        return self._modules[module.__name__]

    def _imported(
        self, module: ModuleType, statement: ast.Import | ast.ImportFrom, name: str
    ) -> None:
        """Take the line that imports one name, or what it imports from a module here."""
        for alias in statement.names:
            bound = alias.asname or (
                alias.name.partition(".")[0] if isinstance(statement, ast.Import) else alias.name
            )
            if bound != name:
                continue
            value = getattr(module, name, None)
            if isinstance(statement, ast.Import):
                if not is_installed(sys.modules[alias.name]):
                    raise NotCutOut(f"{alias.name} is used as a module")
                said = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                if (name, alias.name) != ("torch", "torch"):
                    self.text.take(name, value)
                    self.text.imports[f"import {said}"] = None
                elif alias.asname is None:
                    self.text.imports[f"import {said}"] = None
                continue
            if statement.module == "__future__":
                continue
            source = _absolute(module, statement)
            target = sys.modules.get(source)
            if isinstance(value, ModuleType) and not is_installed(value):
                raise NotCutOut(f"{name} is used as a module")
            if isinstance(value, ModuleType) or target is None or is_installed(target):
                if target is not None and not is_installed(target):
                    raise NotCutOut(f"{name} comes from {source}")
                self._import(source, alias.name, name, value)
            elif alias.name == name:
                self._take(target, name)
            else:
                raise NotCutOut(f"{alias.name} of {source} is called {name}")

    def _found(self, module: ModuleType, name: str) -> None:
        """Take a name that no statement of the module defines, from what it is at run time."""
        if name in BUILTIN or name not in vars(module):
            return  # a local name, or one that fails in the program, too
        value = vars(module)[name]
        if isinstance(value, ModuleType):
            if not is_installed(value):
                raise NotCutOut(f"{name} is used as a module")
            self.text.take(name, value)
            self.text.imports[f"import {value.__name__} as {name}"] = None
            return
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if home is None or home is module or getattr(home, name, None) is not value:
            raise NotCutOut(f"{name} cannot be traced")
        if is_installed(home):
            self._import(home.__name__, name, name, value)
        else:
            self._take(home, name)

    def _copy(self, module: ModuleType) -> None:
        """Copy a module of the user's own folder, or its whole package, beside the main file."""
        file = getattr(module, "__file__", None)
        if file is None:
            raise CaptureError(
                f"{self._cls.__name__} is defined where there is no file; put it into one"
            )
        top = module.__name__.partition(".")[0]
        package = sys.modules.get(top)
        folders = list(getattr(package, "__path__", ()))
        if not folders:
            self.text.copied[f"{_own_name(module)}.py"] = _source(module)
            return
        root = Path(folders[0])
        files = sorted(root.rglob("*.py"))
        if len(files) > MAX_COPIED:
            raise CaptureError(
                f"{self._cls.__name__} needs its package {top}, which has {len(files)} files; "
                f"install the package, or move the class into a module with few others"
            )
        for path in files:
            inside = path.relative_to(root).as_posix()
            self.text.copied[f"{top}/{inside}"] = path.read_text(encoding="utf-8")


def _own_name(module: ModuleType) -> str:
    """Return the name by which a copy of a module is imported."""
    if module.__name__ == "__main__":
        return Path(module.__file__ or "program").stem
    return module.__name__


def _absolute(module: ModuleType, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = (module.__package__ or "").split(".")
    base = package[: len(package) - statement.level + 1]
    return ".".join([*base, *filter(None, [statement.module])])


def _source(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    try:
        return Path(file or "").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotCutOut(f"the source of {module.__name__} cannot be read") from error


class _Module:
    """The statements of a module, by the names that they define."""

    def __init__(self, module: ModuleType) -> None:
        self._text = _source(module)
        self.tree = ast.parse(self._text)
        self._lines = self._text.splitlines(keepends=True)
        self.defined: dict[str, list[int]] = {}
        for place, statement in enumerate(self.tree.body):
            for name in _defined(statement):
                self.defined.setdefault(name, []).append(place)
        self.is_future = any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
            for node in self.tree.body
        )

    def segment(self, statement: ast.stmt) -> str:
        """Return a statement's lines, decorators included."""
        decorators = getattr(statement, "decorator_list", [])
        first = min(node.lineno for node in (statement, *decorators))
        return "".join(self._lines[first - 1 : statement.end_lineno]).rstrip()

    def needs(self, statement: ast.stmt, *, is_lean: bool) -> list[str]:
        """Return the names that a statement reads, without those of annotations alone."""
        return list(dict.fromkeys(_read_names(statement, is_lean=is_lean)))


def _read_names(node: ast.AST, *, is_lean: bool) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id not in BUILTIN:
        yield node.id
    for part, value in ast.iter_fields(node):
        if is_lean and part in ("annotation", "returns"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _read_names(each, is_lean=is_lean)


def _defined(statement: ast.stmt) -> list[str]:
    """Return the names that a statement binds at its own level, blocks included."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import():
            return [each.asname or each.name.partition(".")[0] for each in statement.names]
        case ast.ImportFrom():
            return [each.asname or each.name for each in statement.names]
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return [
                node.id
                for target in targets
                for node in ast.walk(target)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            ]
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            inner = [
                each
                for block in ("body", "orelse", "finalbody")
                for each in getattr(statement, block, [])
            ]
            inner += [e for h in getattr(statement, "handlers", []) for e in h.body]
            return [name for each in inner for name in _defined(each)]
        case _:
            return []


def renamed(source: str, old: str, new: str) -> str:
    """Return a source in which a top-level class has another name."""
    lines = source.split("\n")
    places: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == old:
            places.append((node.lineno, node.col_offset))
        elif isinstance(node, ast.ClassDef) and node.name == old:
            column = lines[node.lineno - 1].encode().index(old.encode(), len("class "))
            places.append((node.lineno, column))
    for line, column in sorted(places, reverse=True):
        text = lines[line - 1].encode()
        lines[line - 1] = (
            text[:column] + new.encode() + text[column + len(old.encode()) :]
        ).decode()
    return "\n".join(lines)
