"""Write a recorded call as a problem file, and try the file against the program's own module."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cudal1.capturing.call import Call, Slot, tensors_in
from cudal1.capturing.literals import is_literal, recovered, shapes, written
from cudal1.capturing.refusal import CaptureError
from cudal1.capturing.sources import NotCutOut, Sources, is_installed, renamed, version_of
from cudal1.errors import describe
from cudal1.files import source_files

if TYPE_CHECKING:
    import torch

HEADER = '"""Captured by cudal1: '
"""Beginning of each captured file, by which a later capture knows that it may replace it."""
SEED = 0
REMEDY = "keep the values of small tensors with data=True (--data)"
"""The remedy where generated inputs do not fit."""
MAX_WIDTH = 99
"""Characters of a line that is not split."""
FLATTEN = '''
def tensors(value):
    """Return the tensors of a nested result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, dict):
        value = vars(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for each in value for tensor in tensors(each)]
'''
INDENT = " " * 4


def problem_text(call: Call) -> str:
    """Return the text of a problem file that does what a recorded call did.

    The class is cut out of its module if that reproduces the call; otherwise it is imported.

    Raises:
        CaptureError: neither does, or an argument cannot be written down.
    """
    said: list[str] = []
    for cuts, is_lean in ((True, True), (True, False), (False, False)):
        try:
            sources = Sources(type(call.module), cuts=cuts, is_lean=is_lean)
            text = _Writer(call, sources).text()
        except NotCutOut as error:
            said.append(str(error))
            continue
        fault = fault_of(text, call)
        if fault is None:
            return text
        said.append(fault)
    raise CaptureError(f"no file does what it does: {'; '.join(dict.fromkeys(said))}")


class _Writer:
    """Writes one problem file."""

    def __init__(self, call: Call, sources: Sources) -> None:
        self._call = call
        self._sources = sources
        self._cls = type(call.module)
        self._name = partial(written, name=sources.name)

    def text(self) -> str:
        """Return the whole text; of several files where modules are copied."""
        made, given, literals = self._constructor()
        calls = self._calls()
        settings = self._settings(made, given)
        is_plain = literals is not None and calls is None and not settings
        taken = self._sources.text
        body = "\n\n\n".join(taken.statements)
        original = self._sources.class_name
        own_init = None
        if literals is None and calls is None and not taken.is_imported:
            own_init = with_constructor(body, original, self._written(), settings)
        if own_init is not None:
            body, model = renamed(own_init, original, "Model"), ""
        elif is_plain and not taken.is_imported:
            body = renamed(body, original, "Model")
            model = ""
        elif is_plain:
            model = f"class Model({original}):\n{INDENT}pass"
        else:
            if original in ("Model", "ModelNew"):
                body, original = renamed(body, original, "Original"), "Original"
            model = self._wrapper(original, literals, calls, settings)
        flatten = "" if self._call.returns_flat else FLATTEN.strip()
        get_inputs = self._get_inputs()
        init = "" if literals is None else ", ".join(map(repr, literals))
        get_init = f"def get_init_inputs():\n{INDENT}return [{init}]"
        lines = [*taken.imports]
        if "import torch" not in lines:
            lines.insert(0, "import torch")
        head = self._header()
        if taken.future:
            head += "\n\nfrom __future__ import annotations"
        parts = [head + "\n\n" + "\n".join(sorted(lines, key=_import_key))]
        parts += [part for part in (body, flatten, model, get_inputs, get_init) if part]
        main = "\n\n\n".join(parts) + "\n"
        return source_files.join(main, taken.copied) if taken.copied else main

    def _header(self) -> str:
        module = sys.modules[self._cls.__module__]
        version = version_of(module) if is_installed(module) else ""
        where = f"{self._cls.__module__}:{self._cls.__qualname__}"
        inputs = ", ".join(
            f"{name} {drawn.words}"
            for name, drawn in zip(self._call.names, self._call.inputs, strict=True)
        )
        line = f"{where}{f' ({version})' if version else ''}."
        wrapped = textwrap.fill(f"One call takes {inputs}.", 99)
        return f'{HEADER}{line}\n\n{wrapped}\n"""'

    def _constructor(self) -> tuple[tuple[Any, ...], dict[str, Any], list[Any] | None]:
        """Return the constructor's arguments, and as literals in order where they are such."""
        args, kwargs = self._given()
        try:
            bound = inspect.signature(self._cls.__init__).bind(None, *args, **kwargs)
        except (TypeError, ValueError):
            return args, kwargs, None
        in_order, by_name = list(bound.args[1:]), bound.kwargs
        if by_name:
            in_order, by_name = _positional(self._cls, args, kwargs)
        if not by_name and all(map(is_literal, in_order)):
            return args, kwargs, in_order
        return args, kwargs, None

    def _given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._call.init is not None:
            return self._call.init[0], dict(self._call.init[1])
        try:
            return (), recovered(self._call.module)
        except CaptureError as error:
            raise CaptureError(
                f"the arguments of {self._cls.__name__}() are not known ({error}): construct it "
                "inside the capture, capture the class and not an instance, or give init_args=(…)"
            ) from error

    def _settings(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Return the lines that bring a new module into the state of the program's own."""
        import torch

        module = self._call.module
        try:
            with _quietly():
                fresh = type(module)(*args, **kwargs)
        except Exception as error:
            raise CaptureError(
                f"{self._cls.__name__} cannot be made again ({describe(error)})"
            ) from error
        lines: list[str] = []
        mine, theirs = _dtypes(module), _dtypes(fresh)
        if mine != theirs:
            kinds = set(mine.values())
            if len(kinds) != 1:
                raise CaptureError(
                    f"its weights are of {len(kinds)} float types, and its constructor makes "
                    "others; convert all of it with .to(dtype), or none"
                )
            lines.append(f"self.to({kinds.pop()})")
        default = torch.get_default_dtype()
        if default is not torch.float32 and mine:
            raise CaptureError(
                f"the program's default dtype is {default}; use .to(dtype) on the module instead"
            )
        if not module.training and self._mode_matters(fresh):
            lines.append("self.eval()")
        return lines

    def _mode_matters(self, fresh: torch.nn.Module) -> bool:
        """Return whether the class may do something else in training mode.

        The difference is a layer with a rate, with running statistics, or a look at the mode.
        """
        import torch

        modes = (torch.nn.modules.batchnorm._NormBase, torch.nn.RReLU)
        for each in fresh.modules():
            if isinstance(each, torch.nn.modules.dropout._DropoutNd):
                differs = bool(each.p)
            elif type(each).__module__.partition(".")[0] == "torch":
                differs = isinstance(each, modes) or bool(getattr(each, "dropout", 0))
            else:
                differs = _looks_at_mode(type(each))
            if differs:
                return True
        return False

    def _calls(self) -> list[str] | None:
        """Return the lines of a forward of its own; None where the class's own takes the inputs."""
        call = self._call
        slots = [each for each in call.args if isinstance(each, Slot)]
        direct = (
            not call.kwargs
            and len(slots) == len(call.args) == len(call.inputs)
            and call.returns_flat
            and call.autocast is None
        )
        if direct:
            return None
        given = [self._argument(each, f"argument {i}") for i, each in enumerate(call.args)]
        named = {key: self._argument(each, f"argument {key}") for key, each in call.kwargs.items()}
        shown = [*given, *(f"{key}={text}" for key, text in named.items())]
        lines = _call("return super().forward", shown, "")
        if not call.returns_flat:
            lines = _call("result = super().forward", shown, "")
            lines.append("return tensors(result)")
        if call.autocast is not None:
            device = f"{call.names[0]}.device.type"
            lines = [
                f"with torch.autocast({device}, dtype=torch.{call.autocast}):",
                *(f"{INDENT}{line}" for line in lines),
            ]
        return lines

    def _argument(self, value: Any, where: str) -> str:
        """Return an argument of the call as an expression over the names of inputs."""
        if isinstance(value, Slot):
            return self._call.names[value.index]
        inside = partial(self._argument, where=where)
        if type(value) is tuple:
            return f"({', '.join(map(inside, value))}{',' if len(value) == 1 else ''})"
        if type(value) is list:
            return f"[{', '.join(map(inside, value))}]"
        if type(value) is dict:
            return f"{{{', '.join(f'{key!r}: {inside(each)}' for key, each in value.items())}}}"
        return self._name(value, f"{where} of the call")

    def _wrapper(
        self,
        original: str,
        literals: list[Any] | None,
        calls: list[str] | None,
        settings: list[str],
    ) -> str:
        lines = [f"class Model({original}):"]
        lines.append(f'{INDENT}"""{self._cls.__name__} as the program makes and calls it."""')
        if literals is None or settings:
            names = [] if literals is None else _init_names(self._cls, len(literals))
            given = names or [f"{key}={text}" if key else text for key, text in self._written()]
            lines += ["", f"{INDENT}def __init__({', '.join(['self', *names])}):"]
            lines += _call("super().__init__", given, INDENT * 2)
            lines += [f"{INDENT * 2}{each}" for each in settings]
        if calls is not None:
            lines += ["", f"{INDENT}def forward({', '.join(['self', *self._call.names])}):"]
            lines += [f"{INDENT * 2}{each}" for each in calls]
        return "\n".join(lines)

    def _written(self) -> list[tuple[str, str]]:
        """Return the constructor's arguments as names and expressions; in order ones unnamed."""
        args, kwargs = self._given()
        where = f"an argument of {self._cls.__name__}()"
        shown = [("", self._name(each, where)) for each in args]
        for key, each in kwargs.items():
            shown.append((key, self._name(each, f"{key} of {self._cls.__name__}()")))
        return shown

    def _get_inputs(self) -> str:
        items = "".join(f"{INDENT * 2}{each.expression},\n" for each in self._call.inputs)
        return f"def get_inputs():\n{INDENT}return [\n{items}{INDENT}]"


def with_constructor(
    source: str, name: str, given: list[tuple[str, str]], settings: list[str]
) -> str | None:
    """Return a source in which a class's constructor makes its arguments itself.

    A class that needs a configuration stays one class, which authors read more easily than a
    subclass. None is returned where the constructor's signature or body is not plain.
    """
    for cls in ast.parse(source).body:
        if isinstance(cls, ast.ClassDef) and cls.name == name:
            inits = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
            break
    else:
        return None
    if len(inits) != 1 or inits[0].decorator_list:
        return None
    init = inits[0]
    arguments = init.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs or arguments.kwonlyargs:
        return None
    if any(isinstance(node, ast.Return) for node in ast.walk(init)):
        return None
    names = [each.arg for each in arguments.args[1:]]
    values = dict(zip(names, [text for key, text in given if not key], strict=False))
    values |= {key: text for key, text in given if key}
    defaults = [ast.unparse(each) for each in arguments.defaults]
    said = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | values
    body = init.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if list(said) != list(dict.fromkeys(said)) or set(said) != set(names) or not body:
        return None
    indent = " " * init.col_offset
    inner = " " * body[0].col_offset
    lines = source.split("\n")
    made = [line for each in names for line in _assigned(each, said[each], inner)]
    first, last = body[0].lineno, init.end_lineno or 0
    return "\n".join(
        [
            *lines[: init.lineno - 1],
            f"{indent}def __init__({arguments.args[0].arg}):",
            *made,
            *lines[first - 1 : last],
            *(f"{inner}{each}" for each in settings),
            *lines[last:],
        ]
    )


def _assigned(name: str, text: str, indent: str) -> list[str]:
    """Return the lines of an assignment; those of a long call have an argument each."""
    line = f"{indent}{name} = {text}"
    call = ast.parse(text, mode="eval").body
    if len(line) <= MAX_WIDTH or not isinstance(call, ast.Call):
        return [line]
    given = [ast.unparse(each) for each in (*call.args, *call.keywords)]
    return _call(f"{name} = {ast.unparse(call.func)}", given, indent)


def _call(called: str, given: list[str], indent: str) -> list[str]:
    """Return the lines of a call, an argument each where one line is too short."""
    line = f"{indent}{called}({', '.join(given)})"
    if len(line) <= MAX_WIDTH:
        return [line]
    lines = [f"{indent}{called}("]
    for each in given:
        call = ast.parse(f"f({each})", mode="eval").body
        assert isinstance(call, ast.Call)
        inner = call.args[0] if call.args else call.keywords[0].value
        prefix = f"{call.keywords[0].arg}=" if call.keywords else ""
        if len(each) > MAX_WIDTH and isinstance(inner, ast.Call):
            parts = [ast.unparse(part) for part in (*inner.args, *inner.keywords)]
            nested = _call(f"{prefix}{ast.unparse(inner.func)}", parts, f"{indent}{INDENT}")
            lines += [*nested[:-1], f"{nested[-1]},"]
        else:
            lines.append(f"{indent}{INDENT}{each},")
    return [*lines, f"{indent})"]


def _import_key(line: str) -> tuple[bool, str]:
    return line.startswith("from "), line


def _looks_at_mode(cls: type) -> bool:
    """Return whether the source of a class speaks of training."""
    try:
        return re.search(r"\btraining\b", inspect.getsource(cls)) is not None
    except (OSError, TypeError):
        return True


def _dtypes(module: torch.nn.Module) -> dict[str, torch.dtype]:
    return {
        key: each.dtype
        for key, each in module.state_dict().items()
        if hasattr(each, "dtype") and each.is_floating_point()
    }


def _positional(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments in order, defaults filled in between; those that have no place by name."""
    left = dict(kwargs)
    in_order = list(args)
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1 + len(args) :]:
        if not left or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            break
        in_order.append(left.pop(parameter.name, parameter.default))
    return in_order, left


def _init_names(cls: type, count: int) -> list[str]:
    """Return names of the first constructor's arguments; numbered ones where it has none."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return [named[i] if i < len(named) else f"argument_{i}" for i in range(count)]


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
        with _quietly(), _imported(text) as problem:
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
        with _quietly(), autocast:
            for seed in (SEED, SEED + 1):
                given = call.filled([each.clone() for each in inputs])
                found.append(_called(module, given, seed))
                module.load_state_dict(kept)
    except Exception as error:
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
def _quietly() -> Iterator[None]:
    """Keep the program's random numbers and default dtype as they are."""
    import torch

    state, default = torch.random.get_rng_state(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.random.set_rng_state(state)
        torch.set_default_dtype(default)
