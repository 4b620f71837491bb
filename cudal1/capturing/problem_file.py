"""Write a recorded call as a problem file."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

from cudal1.capturing.call import Call, Slot
from cudal1.capturing.lines import INDENT, call_lines, with_constructor
from cudal1.capturing.literals import is_literal, recovered, written
from cudal1.capturing.refusal import CaptureError
from cudal1.capturing.sources import NotCutOut, Sources, is_installed, renamed, version_of
from cudal1.capturing.trying import fault_of, undisturbed
from cudal1.errors import describe
from cudal1.files import source_files
from cudal1.kept import class_source_id
from cudal1.origin import Origin, with_origin

if TYPE_CHECKING:
    import torch

HEADER = '"""Captured by cudal1: '
"""Beginning of each captured file, by which a later capture knows that it may replace it."""
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
        constructed = self._written() if literals is None else []  # takes what it names
        calls = self._calls()
        settings = self._settings(made, given)
        is_plain = literals is not None and calls is None and not settings
        taken = self._sources.text
        body = "\n\n\n".join(taken.statements)
        original = self._sources.class_name
        own_init = None
        if literals is None and calls is None and not taken.is_imported:
            own_init = with_constructor(body, original, constructed, settings)
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
        text = source_files.join(main, taken.copied) if taken.copied else main
        origin = self._origin()
        return text if origin is None else with_origin(text, origin)

    def _origin(self) -> Origin | None:
        """Return the class as the program has it; None where its source cannot be read."""
        try:
            source = inspect.getsource(self._cls)
        except (OSError, TypeError):
            return None
        where = f"{self._cls.__module__}:{self._cls.__qualname__}"
        return Origin(replaces=where, source_id=class_source_id(source))

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
            with undisturbed():
                fresh = type(module)(*args, **kwargs)
        except Exception as error:  # the program's own code may raise anything
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
        lines = call_lines("return super().forward", shown, "")
        if not call.returns_flat:
            lines = call_lines("result = super().forward", shown, "")
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
            lines += call_lines("super().__init__", given, INDENT * 2)
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
