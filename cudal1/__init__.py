"""Train language models to write faster GPU code, and prove that the code is faster."""

from cudal1.processes import isolate

TYPE_CHECKING = False  # the flag of that name in `typing` would import the module
if TYPE_CHECKING:
    from cudal1.capturing.capture import capture as capture

isolate("cudal1.cli")

OFFERED = {"capture": "cudal1.capturing.capture"}
"""Names that programs use as `cudal1.NAME`, with the modules that hold them."""


def __getattr__(name: str) -> object:
    """Import what programs use, when they use it: commands and workers need none of it."""
    if name not in OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(OFFERED[name]), name)
