"""Run a module of the checkout that this file is in: `python -I -X utf8 cudal1/start.py MODULE …`.

An isolated interpreter finds packages where they are installed. Ours may be installed from another
checkout: this one was moved or copied together with its environment, or shares one. So `cudal1`,
`tasks` and the rest are found beside this file, by a finder that knows these names and no others:
nothing else of this folder can be imported.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import ModuleSpec, PathFinder

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (pathlib would be imported before the interpreter is known to be isolated)
OURS = ("cudal1", "tasks", "flows", "benchmarks", "tests")


class Beside:
    """A finder of our packages."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return where a package of ours is; None for all other modules."""
        return PathFinder.find_spec(name, [ROOT]) if name in OURS else None


def main() -> None:
    """Run the module that the first argument names, with the other arguments."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -I -X utf8 cudal1/start.py MODULE ARGUMENTS…")
    sys.meta_path.insert(0, Beside)  # type: ignore[arg-type]  # it has all that Python asks for
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
