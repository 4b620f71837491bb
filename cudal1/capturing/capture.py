"""Capture a module while the user's own program calls it: `cudal1.capture`."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cudal1.capturing.call import Call, key_of, recorded, with_result
from cudal1.capturing.problem_file import HEADER, problem_text
from cudal1.capturing.refusal import CaptureError
from cudal1.capturing.trying import fault_of
from cudal1.errors import ConfigError
from cudal1.origin import stem_of

if TYPE_CHECKING:
    import torch

log = logging.getLogger("cudal1")

MAX_SETS = 8
"""Sets of shapes that are captured unless the caller says otherwise."""
MAX_LOOKED_AT = 16
"""Calls of one set that are looked at for bounds and values."""


class capture(ContextDecorator):
    """Record the calls of a module within a block or function, and write problem files.

        with cudal1.capture(MyLayer, "captured") as captured:
            main()

    Each set of shapes, dtypes and other arguments becomes a file in KernelBench's format, which
    `cudal1 judge` takes. A file holds the class's source or an import of it, the constructor's
    arguments, and generators of inputs like the seen ones. The inputs themselves are not kept.

    Args:
        target: a class, or a module of which only this instance is captured.
        folder: where the files go; made if it is not there.
        limit: sets of shapes to write; later ones are ignored.
        data: whether values of tensors of at most 1024 elements are written down.
        init_args: arguments of the constructor, where the module was made before the block.
        init_kwargs: the same by name.

    Raises:
        ConfigError: the target is no module, or the folder cannot be used.
        CaptureError: at the end of a block that raised nothing: the module was not called, or no
            call of it can be captured; the message says why.
    """

    def __init__(
        self,
        target: type[torch.nn.Module] | torch.nn.Module,
        folder: str | Path,
        *,
        limit: int = MAX_SETS,
        data: bool = False,
        init_args: Sequence[Any] | None = None,
        init_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        import torch

        is_class = isinstance(target, type)
        kind = target if is_class else type(target)
        if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
            raise ConfigError(f"{target!r}: not a torch.nn.Module; name a module or its class")
        if kind is torch.nn.Module or kind.forward is torch.nn.Module.forward:
            raise ConfigError(f"{kind.__name__} has no forward of its own; name the class that has")
        if limit < 1:
            raise ConfigError(f"limit={limit}: must be at least 1")
        self._cls: type[torch.nn.Module] = kind
        self._only = None if is_class else target
        self._folder = Path(folder)
        self._limit, self._keeps_data = limit, data
        self._init_of: weakref.WeakKeyDictionary[
            torch.nn.Module, tuple[tuple[Any, ...], dict[str, Any]]
        ] = weakref.WeakKeyDictionary()
        self._given = None
        if init_args is not None or init_kwargs is not None:
            self._given = tuple(init_args or ()), dict(init_kwargs or {})
        self._calls: dict[tuple[Any, ...], list[Call]] = {}
        self._looked_at: dict[tuple[Any, ...], int] = {}
        self._refused: list[str] = []
        self._num_others = 0
        self._kept: dict[str, Any] = {}
        self._is_busy = False
        self.files: list[Path] = []
        """The files that were written, once the block has ended."""
        self.complaints: list[str] = []
        """A line on each set of shapes that cannot be captured."""

    def __enter__(self) -> Self:
        """Watch the class's constructor and forward."""
        for name in ("__init__", "forward"):
            self._kept[name] = vars(self._cls).get(name)
        type.__setattr__(self._cls, "__init__", self._watched_init(self._cls.__init__))
        type.__setattr__(self._cls, "forward", self._watched_forward(self._cls.forward))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching, and write the files; after an error those of the calls before it."""
        for name, own in self._kept.items():
            if own is None:
                type.__delattr__(self._cls, name)
            else:
                type.__setattr__(self._cls, name, own)
        try:
            self._write()
        except CaptureError as refusal:
            if error is None:
                raise
            log.warning("%s", refusal)

    def _watched_init(self, own: Any) -> Any:
        @functools.wraps(own)
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            if type(module) is self._cls:
                own(module, *args, **kwargs)
                self._init_of[module] = args, kwargs
            else:
                own(module, *args, **kwargs)

        return init

    def _watched_forward(self, own: Any) -> Any:
        @functools.wraps(own)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            if type(module) is not self._cls or (
                self._only is not None and module is not self._only
            ):
                self._num_others += 1
                return own(module, *args, **kwargs)
            if self._is_busy:  # a module of this class inside another one
                return own(module, *args, **kwargs)
            self._is_busy = True
            try:
                call = self._noted(module, args, kwargs)
                result = own(module, *args, **kwargs)
                if call is not None and call.result is None:
                    self._note_result(call, result)
            finally:
                self._is_busy = False
            return result

        return forward

    def _noted(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return the record of a call, if it is the first of its kind."""
        key = key_of(module, args, kwargs)
        known = self._calls.get(key, [])
        if not known and len(self._calls) >= self._limit:
            return None
        looked_at = self._looked_at.get(key, 0)
        if looked_at >= MAX_LOOKED_AT:
            return None
        self._looked_at[key] = looked_at + 1
        init = self._given or self._init_of.get(module)
        try:
            call = recorded(module, init, args, kwargs, keeps_data=self._keeps_data)
        except CaptureError as error:
            self._refuse(str(error))
            return None
        for each in known:
            each.inputs = [a.merged(b) for a, b in zip(each.inputs, call.inputs, strict=True)]
            if each.module is module:
                return None
        self._calls.setdefault(key, []).append(call)
        return call

    def _note_result(self, call: Call, result: Any) -> None:
        try:
            with_result(call, result)
        except CaptureError as error:
            self._refuse(str(error))
            for calls in self._calls.values():
                if call in calls:
                    calls.remove(call)

    def _refuse(self, said: str) -> None:
        if said not in self._refused:
            self._refused.append(said)

    def _write(self) -> None:
        """Write a file for each set of shapes.

        Raises:
            CaptureError: there is none.
        """
        texts: dict[str, None] = {}
        for calls in self._calls.values():
            written: list[str] = []
            for call in calls:
                if call.result is None:  # the call raised
                    continue
                try:
                    if any(fault_of(text, call) is None for text in written):
                        continue  # another layer of the same model
                    text = problem_text(call)
                except CaptureError as error:
                    self._refuse(str(error))
                    continue
                written.append(text)
                texts[text] = None
        self.complaints = [f"{self._cls.__name__}: {said}" for said in self._refused]
        if not texts:
            raise CaptureError(self.complaints[0] if self._refused else self._uncalled())
        self._save(list(texts))
        for line in self.complaints:
            log.warning("not captured: %s", line)

    def _uncalled(self) -> str:
        name = self._cls.__name__
        if not self._num_others:
            return (
                f"{name} was never called; run the part of the program that calls it (a compiled, "
                "scripted or fused module does not: capture before it is)"
            )
        return (
            f"{name} itself was never called, but {self._num_others} calls were of a subclass or "
            "another instance; name that one"
        )

    def _save(self, texts: list[str]) -> None:
        stem = stem_of(self._cls.__name__)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number, text in enumerate(texts, start=1):
                name = stem if len(texts) == 1 else f"{stem}_{number}"
                file = self._folder / f"{name}.py"
                if file.exists() and not file.read_text(encoding="utf-8").startswith(HEADER):
                    raise ConfigError(f"{file}: is no captured file; name another folder")
                file.write_text(text, encoding="utf-8")
                self.files.append(file)
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: cannot be written ({error.strerror}); name another folder"
            ) from error
