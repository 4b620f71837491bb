"""A folder of Python files as the one text of a problem or a candidate (`source_files`).

The main file is the one that holds the names asked for. Of the folder's other modules, those are
taken that the main file mentions, or another taken module. A folder may also hold unrelated files,
such as candidates beside a problem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.files.source_files import MAIN, join, split
from cudal1.files.text_file import MAX_BYTES, read_python

MAX_FILES = 1000
"""Maximum number of Python files in a folder of a problem."""
_MODULE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def read_folder(folder: Path, names: Sequence[str], *, any_codec: bool = False) -> str:
    """Return the text of the main file of a folder and of the modules that it needs.

    Args:
        folder: searched with its packages, except hidden ones.
        names: names that the main file holds.
        any_codec: see `read_python`.

    Raises:
        SuiteError: no file holds the names or several do, one cannot be read or lies elsewhere, or
            there are too many.
    """
    files = dict(_python_files(folder))
    texts = _texts(files, any_codec=any_codec)
    main = _main(folder, texts, names)
    others = _needed(files, texts[main], leaving=(main,), any_codec=any_codec)
    return _joined(folder, texts[main], others)


def read_each(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the text of each main file of a folder, with the modules that it needs, by path.

    Args:
        folder: searched as `read_folder` does; the main files lie in it and not in its packages.
        names: names that a main file defines at its top level.

    Raises:
        SuiteError: as `read_folder`; of main files there may be any number.
    """
    files = dict(_python_files(folder))
    texts = _texts(files, any_codec=False)
    mains = [path for path, text in texts.items() if all(_defines(text, name) for name in names)]
    return {
        path: _joined(folder, texts[path], _needed(files, texts[path], leaving=mains))
        for path in mains
    }


def modules_for(folder: Path, text: str) -> dict[str, str]:
    """Return the modules of a folder that a text needs, by their paths.

    Raises:
        SuiteError: as `read_folder`.
    """
    return _needed(dict(_python_files(folder)), text, leaving=())


def _texts(files: Mapping[str, Path], *, any_codec: bool) -> dict[str, str]:
    """Return the texts of the files that lie in the folder itself, where they can be read."""
    texts: dict[str, str] = {}
    for path, file in files.items():
        if "/" not in path:
            with suppress(SuiteError):  # the file may be unrelated
                texts[path] = read_python(file, raising=SuiteError, any_codec=any_codec)
    return texts


def _needed(
    files: Mapping[str, Path], text: str, *, leaving: Collection[str], any_codec: bool = False
) -> dict[str, str]:
    """Return the modules that a text mentions, or one of them does, by their paths."""
    taken: dict[str, str] = {}
    mentioned = [text]
    modules = {path.partition("/")[0].removesuffix(".py") for path in files if path not in leaving}
    while mentioned:
        text = mentioned.pop()
        for module in sorted(filter(_MODULE.fullmatch, modules)):
            if not re.search(rf"\b{module}\b", text):
                continue
            modules.remove(module)
            for path, file in files.items():
                if path == f"{module}.py" or path.startswith(f"{module}/"):
                    taken[path] = read_python(file, raising=SuiteError, any_codec=any_codec)
                    mentioned.append(taken[path])
    return taken


def _python_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield Python files by their paths in the folder, those of packages included."""
    home = folder.resolve()
    num_files = 0
    for found, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if _MODULE.fullmatch(each))
        for file in sorted(file for file in files if file.endswith(".py")):
            path = Path(found, file)
            if path.parent != folder and not _MODULE.fullmatch(path.stem):
                continue  # nothing can import it
            if not path.resolve().is_relative_to(home):
                raise SuiteError(f"{path}: is a link out of {folder}; put the file itself there")
            num_files += 1
            if num_files > MAX_FILES:
                raise SuiteError(
                    f"{folder}: holds more than {MAX_FILES} Python files; give a folder of its own"
                )
            yield path.relative_to(folder).as_posix(), path


def _main(folder: Path, texts: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the file that holds the names; of several, the only one that makes the first name."""
    asked = ", ".join(names)
    holding = [path for path in texts if all(_mentions(texts[path], name) for name in names)]
    if len(holding) > 1:
        made = re.compile(rf"^\s*class\s+{names[0]}\b|^\s*{names[0]}\s*=", re.MULTILINE)
        holding = [path for path in holding if made.search(texts[path])] or holding
    match holding:
        case [path]:
            return path
        case []:
            raise SuiteError(f"{folder}: a folder in which no file has {asked}; name another")
        case _:
            shown = ", ".join(holding[:3]) + (", …" if len(holding) > 3 else "")
            raise SuiteError(
                f"{folder}: a folder in which {shown} each have {asked}; name one, or give each "
                "a folder of its own"
            )


def _defines(text: str, name: str) -> bool:
    """Return whether a file makes a name at its top level, or imports it there."""
    made = rf"^(class|def)\s+{name}\b|^{name}\s*=|^(from|import)\b.*\b{name}\b"
    return re.search(made, text, re.MULTILINE) is not None


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _joined(folder: Path, main: str, others: Mapping[str, str]) -> str:
    text = join(main, others)
    if len(text) > MAX_BYTES:
        raise SuiteError(f"{folder}: its files have more than {MAX_BYTES >> 20} MiB together")
    wanted = {MAIN: main, **others}
    for path, read in split(text).items():
        if read.rstrip("\n") != wanted.get(path, "").rstrip("\n"):
            raise SuiteError(
                f"{folder}: a line of {path or 'the main file'} reads as the beginning of a file, "
                "# cudal1: file …; take it out"
            )
    return text
