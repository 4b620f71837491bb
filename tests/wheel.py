"""Make, offline, a virtual environment with the wheel of this tree and its core's requirements.

Requirements are files of the environment that the tests run in, linked into the new one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project import ROOT, copy_of_the_tree

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def needed(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed distributions that requirements bring, by name."""
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    waiting = list(requirements)
    while waiting:
        line = waiting.pop()
        if line in seen:
            continue
        seen.add(line)
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        found[name] = distribution(name)
        for each in found[name].requires or ():
            marker = Requirement(each).marker
            extras = {"", *requirement.extras}
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(each)
    return found


def build(folder: Path) -> Path:
    """Build the wheel of this tree, in a copy of it."""
    project = copy_of_the_tree(folder / "tree")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(folder),
            ".",
        ],
        cwd=project.folder,
        env=project.environment(),
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with the wheel and the core's requirements; return its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    places = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", places))
    for each in needed(PROJECT["dependencies"]).values():
        for name in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            source = Path(str(each.locate_file(name)))
            if source.is_dir():
                shutil.copytree(source, site / name, copy_function=_link, dirs_exist_ok=True)
            else:
                _link(source, site / name)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder),
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            str(wheel),
        ],
        check=True,
    )
    return folder / "bin"


def _link(source: str | Path, target: str | Path) -> None:
    """Make a hard link, or a copy on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
