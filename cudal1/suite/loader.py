"""The shipped suite, and any other module, as problems.

Sizes follow the device class by one mechanism for all. A sizes file names the top-level constants
to replace, and the resulting source is the one shown and judged. KernelBench: `kernelbench.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.files.source_folder import read_folder
from cudal1.files.text_file import read_python, read_text
from cudal1.problem import PROBLEM_NAMES, DeviceClass, Problem, Split, resize
from cudal1.record import content_id
from cudal1.suite.sizes import load_sizes, refuse_unknown

FOLDER = Path(__file__).parent / "problems"
_NUMBERED = re.compile(r"(\d+)_(.+)")


def load_suite(device_class: DeviceClass) -> list[Problem]:
    """Return the problems that ship with cudal1, in the sizes of a device class.

    A quarter of each level is held out, always the same (`heldout` in problems/sizes.yaml). The
    revision names the content of the folder, sizes and splits included.
    """
    sizes_path = FOLDER / "sizes.yaml"
    sizes = load_sizes(sizes_path)
    paths = {short_name(path): path for path in sorted(FOLDER.glob("level*/*.py"))}
    refuse_unknown(sizes, paths, where=sizes_path)
    revision = content_id(
        *paths,
        *(read_source(path) for path in paths.values()),
        read_text(sizes_path, raising=SuiteError),
    )
    return [
        load_file(
            path,
            suite="cudal1",
            level=level_of(path),
            device_class=device_class,
            split=Split.HELDOUT if name in sizes.heldout else Split.TRAIN,
            revision=revision,
            sizes=sizes.of(device_class, name),
        )
        for name, path in paths.items()
    ]


def load_file(
    path: Path,
    *,
    device_class: DeviceClass,
    suite: str = "own",
    level: int = 1,
    split: Split = Split.TRAIN,
    revision: str | None = None,
    sizes: Mapping[str, object] | None = None,
) -> Problem:
    """Return one problem file, resized; a name like `13_matmul.py` gives number and name.

    Without a revision, the file's content is its revision.

    Raises:
        SuiteError: the file cannot be read or parsed, or lacks a constant to resize.
    """
    return problem_of(
        read_source(path),
        path,
        device_class=device_class,
        suite=suite,
        level=level,
        split=split,
        revision=revision,
        sizes=sizes,
    )


def problem_of(
    source: str,
    path: Path,
    *,
    device_class: DeviceClass,
    suite: str = "own",
    level: int = 1,
    split: Split = Split.TRAIN,
    revision: str | None = None,
    sizes: Mapping[str, object] | None = None,
) -> Problem:
    """Return the problem in a source that was read from `path`, as `load_file` does.

    Raises:
        SuiteError: the source cannot be parsed, or lacks a constant to resize.
    """
    # `.` and `..` have a name elsewhere
    stem = path.stem if path.stem.strip(".") else path.resolve().name
    number, name = number_and_name(stem)
    return Problem(
        suite=suite,
        level=level,
        number=number,
        name=name,
        split=split,
        device_class=device_class,
        revision=revision or content_id(source),
        source=resize(source, sizes or {}, where=str(path)),
    )


def read_source(path: Path) -> str:
    """Return the source in a file, or of a folder's files, as Python reads it.

    Raises:
        SuiteError: it is absent, unreadable, no text, in an unknown encoding, or a folder without a
            problem.
    """
    if path.is_dir():
        return read_folder(path, PROBLEM_NAMES)
    return read_python(path, raising=SuiteError)


def number_and_name(stem: str) -> tuple[int, str]:
    """Return 13 and `matmul_relu` for `13_Matmul-relu_`; without a number it is 1."""
    numbered = _NUMBERED.fullmatch(stem)
    number, rest = (int(numbered[1]), numbered[2]) if numbered else (1, stem)
    return number, re.sub(r"[\W_]+", "_", rest).strip("_").lower()


def short_name(path: Path) -> str:
    """Return a problem's name in sizes files, such as `level1/13_matmul`."""
    return f"{path.parent.name}/{path.stem}"


def level_of(path: Path) -> int:
    """Return the level of a file in a folder such as `level1`."""
    return int(path.parent.name.removeprefix("level"))
