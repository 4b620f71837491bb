"""Check the checkout that a program works in: the folder of its code, and places for its files.

`data`, and folders in it, may be links to another disk. DVC follows them unless runs are kept in
git (docs/rebuilding.md): then it refuses, though only after a stage has run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cudal1.errors import ConfigError
from cudal1.processes import ROOT

CHECKOUT = Path(ROOT)
"""The folder of params.yaml, dvc.yaml and data/."""


def refuse_elsewhere() -> None:
    """Refuse a working directory that is not the checkout: its params.yaml would be another one.

    Raises:
        ConfigError: the working directory is another folder.
    """
    if not CHECKOUT.samefile("."):
        raise ConfigError(f"{Path.cwd()}: not the folder of this checkout; run this in {CHECKOUT}")


def refuse_places(stage: Any, repo: Any) -> None:
    """Refuse, before a stage runs, places for its outputs that it or DVC would refuse afterwards.

    Args:
        stage: DVC's stage.
        repo: DVC's repository.

    Raises:
        ConfigError: a place is no folder, or a link that git cannot follow.
    """
    from dvc.scm import NoSCM

    for out in stage.outs:
        for folder in Path(out.def_path).parents:
            place = Path(stage.wdir, folder)
            if os.path.lexists(place) and not place.is_dir():
                what = "a link to nothing" if place.is_symlink() else "not a folder"
                raise ConfigError(f"{folder}: {what}; make the folder, or remove {folder}")
        if isinstance(repo.scm, NoSCM):
            continue
        root, place = Path(repo.scm.root_dir), Path(stage.wdir, out.def_path).parent
        if not place.resolve().is_relative_to(root.resolve()):
            raise ConfigError(
                f"{out.def_path}: behind a link that leads out of {root}, which DVC cannot follow "
                "where runs are kept in git; make it a folder, or `dvc config core.no_scm true`"
            )
