"""Train language models to write faster GPU code, and prove that the code is faster."""

from __future__ import annotations

from cudal1.processes import isolate

TYPE_CHECKING = False  # the flag of that name in `typing` would import the module
if TYPE_CHECKING:
    from cudal1.applying.apply import Applied, apply, unapply

isolate("cudal1.cli")

PUBLIC = {
    "Applied": "cudal1.applying.apply",
    "apply": "cudal1.applying.apply",
    "unapply": "cudal1.applying.apply",
}
"""Modules of the names that programs use as `cudal1.NAME`; each is imported when it is asked for,
because `import cudal1` alone imports no library and changes nothing."""

__all__ = ["Applied", "apply", "unapply"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)
