"""Load a version's file, and its problem's, into this process.

Both are code that runs here with all rights of the program. A text is run only if its content id is
the one that was proven, and what is run is the text that was compared, not the file.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import sys
from collections.abc import Iterator
from types import ModuleType

import torch

from cudal1.errors import SuiteError, describe
from cudal1.files.source_files import cut
from cudal1.record import content_id

NAME = "cudal1_kept_{}"
"""Name of the module of a source, by the source's content id."""


def load(source: str, path: str) -> ModuleType:
    """Return the module of a source; the same source is run once a process.

    Args:
        source: the text to run.
        path: the file that it was read from, for tracebacks.

    Raises:
        SuiteError: it is of several files, or raises when it is run.
    """
    _, others = cut(source)
    if others:
        raise SuiteError(f"{path}: has several files; apply takes versions of one file")
    name = NAME.format(content_id(source))
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = f"<{name}>/{path}"
    # compilers of kernels ask for the source of a function
    linecache.cache[module.__file__] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        module.__file__,
    )
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    except Exception as error:  # a version may raise anything
        del sys.modules[name]
        raise SuiteError(f"{path}: raises when it is run ({describe(error)})") from error
    return module


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Restore the state of all generators of random numbers afterwards.

    A constructor draws weights, and the program's own numbers must not depend on that.
    """
    ours = random.getstate()
    numpy = sys.modules.get("numpy")
    numpys = numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(ours)
        if numpy:
            numpy.random.set_state(numpys)
