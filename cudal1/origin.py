"""The class of a program that a problem's file was written from, as its last line names it.

A faster version of the file may replace the class in the program. So the line holds the content id
of the class's source, and that of the file itself: a file that was edited has lost its origin.

    # cudal1: written from layers:GatedNorm, source 0123456789abcdef, file fedcba9876543210
"""

from __future__ import annotations

import ast
import inspect
import io
import re

from cudal1.kept import class_source_id
from cudal1.record import Record, content_id

_LINE = re.compile(
    r"^# cudal1: written from (?P<replaces>\S+), source (?P<source>[0-9a-f]{16}), "
    r"file (?P<file>[0-9a-f]{16})\n\Z",
    re.MULTILINE,
)
_WORD = re.compile(r"(?<=[a-z]{3})(?=[A-Z])|(?<=[a-z]\d)(?=[A-Z])|(?<=[A-Za-z0-9])(?=[A-Z][a-z])")
"""The beginnings of words in a class's name: LlamaRMSNorm is llama_rms_norm."""


class Origin(Record):
    """A class of a program, with the source that it had."""

    replaces: str
    """`package.module:Class`."""
    source_id: str
    """Content id of the class's source (`class_source_id`)."""


def with_origin(text: str, origin: Origin) -> str:
    """Return a problem's text with a last line that names its origin."""
    text = text if text.endswith("\n") else f"{text}\n"
    said = f"# cudal1: written from {origin.replaces}, source {origin.source_id}, "
    return f"{text}{said}file {_file_id(text, origin)}\n"


def origin_of(text: str) -> Origin | None:
    """Return the origin that a problem's text names; None without one, and of an edited text."""
    found = _LINE.search(text)
    if found is None:
        return None
    origin = Origin(replaces=found["replaces"], source_id=found["source"])
    return origin if _file_id(text[: found.start()], origin) == found["file"] else None


def is_edited(text: str) -> bool:
    """Return whether a problem's text was changed after its origin was written down."""
    return "\n# cudal1: written from " in text and origin_of(text) is None


def source_id_in(text: str, name: str) -> str | None:
    """Return the content id of a class's source in its module's text, as `inspect` would read it.

    Nothing is run. None where the top level of the text does not define the class exactly once.
    """
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [node for node in top if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        return None
    lines = io.StringIO(text if text.endswith("\n") else f"{text}\n").readlines()
    first = min([found[0].lineno, *(each.lineno for each in found[0].decorator_list)])
    return class_source_id("".join(inspect.getblock(lines[first - 1 :])))


def stem_of(name: str) -> str:
    """Return the name of a class's problem file, without its ending."""
    return _WORD.sub("_", name).lower()


def _file_id(text: str, origin: Origin) -> str:
    return content_id(text, origin.replaces, origin.source_id)
