"""Kept: a proven faster version of a module, with the verdicts that prove it.

`cudal1 optimize` writes one beside the version itself, as JSON; `cudal1 check` judges it again, and
`cudal1.apply` uses the version where it was proven.
"""

from __future__ import annotations

from cudal1.problem import DeviceClass
from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.verdict import Verdict

SUFFIX = ".faster.json"
"""End of a record's file name; the version of `model.py` is `model.faster.py` beside it."""


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
    """Versions of what the verdict depends on, by name: torch, cuda, driver, python."""


class Kept(Record):
    """A version that replaces a module for the shapes, dtypes and devices of its proofs."""

    version: str
    """Path of the file with `ModelNew`, relative to the record's folder."""
    candidate_source_id: str
    """Content id of the version's source, as judged; a file that was edited later has another."""
    replaces: str | None
    """`package.module:Class`, where the module is one of a program; None for a problem's file."""
    proofs: tuple[Proof, ...]
