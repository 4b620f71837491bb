"""The shipped suite, and anybody's own module, as problems.

Sizes follow the device class by one mechanism for all: `sizes.yaml` names the top-level constants
to replace (`cudal1.problem.resize`), and the source that results is the one shown and judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Problem, Split, resize
from cudal1.record import content_id

FOLDER = Path(__file__).parent / "problems"
_FILE_NAME = re.compile(r"(\d+)_(\w+)")


def load_suite(device_class: DeviceClass) -> list[Problem]:
    """The problems that ship with cudal1, in the sizes of a device class."""
    sizes = load_sizes(FOLDER / "sizes.yaml")
    paths = sorted(FOLDER.glob("level*/*.py"))
    revision = content_id(*(path.read_text(encoding="utf-8") for path in paths))
    heldout = set(sizes.get("heldout", []))
    constants = sizes.get(device_class.value, {})
    return [
        load_file(
            path, suite="cudal1", level=int(path.parent.name.removeprefix("level")),
            split=Split.HELDOUT if _short(path) in heldout else Split.TRAIN,
            device_class=device_class, revision=revision, sizes=constants.get(_short(path), {}),
        )
        for path in paths
    ]  # fmt: skip


def load_file(
    path: Path, *, suite: str, level: int, split: Split, device_class: DeviceClass, revision: str,
    sizes: Mapping[str, object],
) -> Problem:  # fmt: skip
    """One problem file, resized.

    Raises:
        SuiteError: the file cannot be read or parsed, or lacks a constant to resize.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read ({error})") from error
    named = _FILE_NAME.fullmatch(path.stem)
    return Problem(
        suite=suite,
        level=level,
        number=int(named.group(1)) if named else 1,
        name=re.sub(r"\W+", "_", named.group(2) if named else path.stem).lower(),
        split=split,
        device_class=device_class,
        revision=revision,
        source=resize(source, sizes, where=str(path)),
    )


def load_sizes(path: Path) -> dict[str, Any]:
    """A sizes file: constants by problem, under the name of a device class.

    Raises:
        SuiteError: it cannot be read or is not a mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SuiteError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise SuiteError(f"{path}: must map a device class to problems and their constants")
    return content


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"
