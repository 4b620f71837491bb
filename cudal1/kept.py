"""Kept: a proven faster version of a module, with the verdicts that prove it.

`cudal1 optimize` writes one beside the version itself, as JSON; `cudal1 check` judges it again, and
`cudal1.apply` uses the version where it was proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cudal1.problem import DeviceClass
from cudal1.protocol import EvalProtocol
from cudal1.record import Record, content_id
from cudal1.verdict import Verdict

SUFFIX = ".faster.json"
"""End of a record's file name; the version of `model.py` is `model.faster.py` beside it."""

MARK = "# cudal1: the source that was judged begins below this line"
"""Line of a version's file behind the comments that tell where it comes from."""


class Proof(Record):
    """A successful verdict on one problem: one set of shapes, dtypes and arguments."""

    problem: str
    """Path of the problem's file, relative to the record's folder."""
    problem_id: str
    device_class: DeviceClass
    inputs: tuple[str, ...]
    """The arguments of a call in words: `float32[8, 1024]` of a tensor, else the value itself."""
    protocol: EvalProtocol
    verdict: Verdict
    """A correct verdict with a certified speedup; it names the device kind."""
    versions: dict[str, str]
    """Versions of what the verdict depends on, by name: torch, cuda, driver, python, processor."""
    sessions: tuple[float, ...] = ()
    """Speedups over the reference that were measured in fresh processes, one a measurement. They
    are what `cudal1 check` compares with; empty: it compares with the verdict's bounds."""
    invariants: tuple[str, ...] = ()
    """Properties of the problem's inputs in every draw. Nothing was proven for other inputs."""


class Kept(Record):
    """A version that replaces a module for the shapes, dtypes and devices of its proofs."""

    version: str
    """Path of the file with `ModelNew`, relative to the record's folder."""
    candidate_source_id: str
    """Content id of the version's source, as judged; a file that was edited later has another."""
    replaces: str | None
    """`package.module:Class`, where the module is one of a program; None for a problem's file."""
    replaces_source_id: str | None = None
    """Content id of the class's source as `inspect.getsource` has it (`class_source_id`), when it
    was proven; a class that was edited later has another."""
    proofs: tuple[Proof, ...]


def judged_source(text: str) -> str:
    """Return the source of a version's file as it was judged: without the comments before `MARK`.

    A file with a line of code before the mark is a source with all its lines.
    """
    head, mark, source = text.partition(f"{MARK}\n")
    is_header = all(line.startswith("#") for line in head.splitlines())
    return source if mark and is_header else text


def class_source_id(source: str) -> str:
    """Return the content id of a class's source, as `inspect.getsource` returns it."""
    return content_id(source)


def in_words(values: Sequence[Any]) -> tuple[str, ...]:
    """Return the arguments of a call in words, each as `Proof.inputs` has it."""
    return tuple(_word(value) for value in values)


def _word(value: Any) -> str:
    """Return the words of one argument; a tensor is known by its `dtype` and `shape`."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{[int(size) for size in value.shape]}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_word(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        inside = ", ".join(_word(each) for each in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return repr(value)
