"""Put proven versions in place of a model's modules, and take them out again."""

from __future__ import annotations

import logging
from pathlib import Path
from types import MethodType, TracebackType
from typing import Self

from torch import nn

from cudal1.applying import records
from cudal1.applying.dispatcher import Dispatcher, Once
from cudal1.applying.proven import Proven
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.kept import Kept

log = logging.getLogger("cudal1.apply")


class Applied:
    """The versions that `apply` has put in place; as a context manager it ends with the originals.

    Args:
        model: the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.swapped: dict[str, tuple[str, ...]] = {}
        """Files of the versions that a module may call, by the module's name in the model."""
        self.refused: tuple[str, ...] = ()
        """Reasons for which versions or modules were left out, a line each."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unapply(self.model)


def apply(model: nn.Module, folder: str | Path) -> Applied:
    """Have a model's modules call the proven versions of their classes, where those were proven.

    A record of the folder names the class that its version replaces (`kept.Kept.replaces`). Each
    module of exactly this class, constructed as it was proven, calls the version for the shapes,
    types, kinds of device and modes of its proofs. Elsewhere it calls its own `forward`; the log
    (`cudal1.apply`) has a line for each reason. The version's file runs in this process, if it has
    the content that was proven (docs/threat-model.md).

    Args:
        model: it is changed; its weights stay its own.
        folder: a folder with *.faster.json files, or one of these.

    Raises:
        ConfigError: the model is no module.
        StoreError: there is no record, or one cannot be read.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"apply: {type(model).__name__} is no torch.nn.Module")
    refused: list[str] = []
    by_class: dict[str, list[Proven]] = {}
    for path in records.find(Path(folder)):
        kept = records.read(path)
        if kept.replaces is None:
            refused.append(f"{path}: replaces no class: it was proven for a problem's file")
            continue
        by_class.setdefault(kept.replaces, []).extend(_proven(path, kept, refused))
    applied, once = Applied(model), Once()
    for name, module in model.named_modules():
        kind = type(module)
        versions = by_class.get(f"{kind.__module__}:{kind.__qualname__}", [])
        own = vars(module).get("forward")
        if versions and own is not None and _dispatcher(own) is None:
            refused.append(f"{name or kind.__qualname__}: its forward was replaced before")
            continue
        fitting: list[Proven] = []
        for version in versions:
            if said := version.refusal(module):
                refused.append(f"{name or kind.__qualname__}: {said}")
            else:
                fitting.append(version)
        if fitting:
            dispatcher = Dispatcher(module, tuple(fitting), once)
            dispatcher.remember()
            module.__dict__["forward"] = dispatcher.call
            applied.swapped[name] = tuple(dict.fromkeys(str(each.path) for each in fitting))
    for version in (each for versions in by_class.values() for each in versions):
        version.forget_reference()
        if said := version.changed_versions():
            once.say(f"{version.path} versions", f"{version.path}: {said}")
    applied.refused = tuple(dict.fromkeys(refused))
    for line in applied.refused:
        log.warning("%s", line)
    log.info("%d modules may call proven versions", len(applied.swapped))
    return applied


def unapply(model: nn.Module) -> None:
    """Have all modules of a model call their own `forward` again."""
    for module in model.modules():
        if _dispatcher(vars(module).get("forward")) is not None:
            del module.__dict__["forward"]


def _proven(path: Path, kept: Kept, refused: list[str]) -> list[Proven]:
    """Return a record's versions, one for each proof that holds; note why others do not."""
    found: list[Proven] = []
    for proof in kept.proofs:
        try:
            found.append(Proven(path, kept, proof))
        except CudaL1Error as error:
            refused.append(str(error))
    return found


def _dispatcher(forward: object) -> Dispatcher | None:
    """Return the dispatcher behind a module's `forward`, if there is one."""
    if not isinstance(forward, MethodType):
        return None
    return forward.__self__ if isinstance(forward.__self__, Dispatcher) else None
