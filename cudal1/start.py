"""Run a module of the checkout that this file is in: `python -I -X utf8 cudal1/start.py MODULE …`.

An isolated interpreter finds packages where they are installed. Our packages may be installed from
another checkout: this one was moved or copied together with its environment, or shares one. So a
finder looks for `cudal1`, `tasks` and the rest beside this file. The finder knows these names and
no others: nothing else of this folder can be imported.

A process that `multiprocessing` spawns runs the main module's file first. To the process that is
this file, so that it finds our packages, too. A function that it is to call must be in a module
with a name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder

START = os.path.abspath(__file__)  # noqa: PTH100 (pathlib would be imported before the interpreter is known to be isolated)
ROOT = os.path.dirname(os.path.dirname(START))  # noqa: PTH120 (as above)
OURS = ("cudal1", "tasks", "flows", "benchmarks", "tests")


class Beside:
    """A finder of our own packages."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the place of a package of ours; None for all other modules."""
        return PathFinder.find_spec(name, [ROOT]) if name in OURS else None


class Main(types.ModuleType):
    """A main module; its own globals have its true `__file__`."""

    __file__ = property(lambda self: START)  # type: ignore[assignment]  # all others see this file


def main() -> None:
    """Run the module that the first argument names, as `python -m` would, with all arguments."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -I -X utf8 cudal1/start.py MODULE ARGUMENTS…")
    del sys.argv[0]
    spec = _spec_of(sys.argv[0])
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]  # a module's loader has it
    sys.argv[0] = spec.origin or sys.argv[0]
    module = Main("__main__")
    vars(module).update(__file__=spec.origin, __package__=spec.parent)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _spec_of(name: str) -> ModuleSpec:
    """Return the place of a module; of a package, the place of its `__main__`."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # not even the package
        spec = None
    if spec is None:
        sys.exit(f"{START}: there is no module {name}")
    return spec if spec.submodule_search_locations is None else _spec_of(f"{name}.__main__")


if __name__ in ("__main__", "__mp_main__"):
    sys.meta_path.insert(0, Beside)  # type: ignore[arg-type]  # it has all that Python asks for
if __name__ == "__main__":
    main()
