"""Remedies for a candidate that failed because a file beside it was missing.

Threat: the reason is in the candidate's words. It is searched for a name, and the only use of that
name is to look for a file beside the candidate, for a note to a person.
"""

from __future__ import annotations

import re
from pathlib import Path

from cudal1.files.text_file import mode_of

ABSENT_MODULE = re.compile(r"No module named '([A-Za-z_]\w*)", re.ASCII)
ABSENT_FILE = re.compile(r"No such file or directory: '(?:\./)?([^'/\0]+)'")
RELATIVE = "attempted relative import"


def remedy(candidate: Path, reason: str) -> str | None:
    """Return a note that names the file and what to do; None where no such file is missing.

    Args:
        candidate: the file or folder that was judged.
        reason: why the candidate was not correct.
    """
    is_folder = candidate.is_dir()
    folder = candidate if is_folder else candidate.parent
    if RELATIVE in reason:
        whole = "" if is_folder else ", and give a folder that holds all of them"
        return (
            f"{candidate}: files of a candidate import each other by their names alone: write "
            f"`from helpers import …` for `from .helpers import …`{whole}"
        )
    if (absent := ABSENT_MODULE.search(reason)) and not is_folder:
        found = [folder / f"{absent[1]}.py", folder / absent[1]]
        for path in filter(mode_of, found):
            return (
                f"{path}: lies beside {candidate.name} and was not read, for a single file was "
                "given; give a folder that holds both, or put all into one file"
            )
    if absent := ABSENT_FILE.search(reason):
        path = folder / absent[1]
        if mode_of(path):
            return (
                f"{path}: a candidate finds no files but its own Python files; put the text of "
                "this one into the source, as a string for load_inline if it is C++ or CUDA"
            )
    return None
