"""A Problem: one KernelBench-style item, its reference source as it will be shown and judged.

Loading suites is `cudal1.suite`; running a problem is `cudal1.harness`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from enum import StrEnum

from cudal1.errors import SuiteError
from cudal1.record import Record, content_id
from cudal1.source_files import cut


class DeviceClass(StrEnum):
    """What kind of device sizes were chosen for; speedups of two classes are never compared."""

    CPU = "cpu"
    CUDA = "cuda"
    FAKE = "fake"
    """An asynchronous device made of threads (`harness.worker.fake`): for tests; sized as a CPU."""


class Split(StrEnum):
    """Whether a problem may be trained on."""

    TRAIN = "train"
    HELDOUT = "heldout"


PROBLEM_NAMES = ("Model", "get_inputs", "get_init_inputs")
"""A problem's module defines these names."""


NULL_MARK = '\nassert "null test"\n'
"""Ends the source of a null test, so that it is measured in full: a candidate that is the reference
to the letter is known to be as fast (`harness.sameness`)."""


class Problem(Record):
    """One item of a suite, with the sizes of one device class already written into its source."""

    suite: str
    """`cudal1` (shipped, written by hand), `generated`, or `kernelbench`."""
    level: int
    """1 single operator, 2 operator sequence, 3 small architecture, 4 (KernelBench) whole model."""
    number: int
    """Position inside suite and level, from 1."""
    name: str
    """Short snake_case name."""
    split: Split
    """Training stages see `train` only."""
    device_class: DeviceClass
    """Whose sizes the source carries."""
    revision: str
    """Which version of the suite this came from."""
    source: str
    """The file with `PROBLEM_NAMES`, or all files (`source_files`), shown as it is judged."""

    @property
    def id(self) -> str:
        """Content id of the source: the same file is the same problem, whatever its name."""
        return content_id(self.source)

    @property
    def null_source(self) -> str:
        """The reference as a candidate for itself: the null test, which must gain nothing."""
        return re.sub(r"\bModel\b", "ModelNew", self.source) + NULL_MARK

    @property
    def key(self) -> str:
        """`suite/L2/07_name`, for people."""
        return f"{self.suite}/L{self.level}/{self.number:02d}_{self.name}"


class Admission(Record):
    """Whether a problem can be judged at all, and why not."""

    problem_id: str
    admitted: bool
    reason: str | None = None
    """Set exactly when the problem was rejected."""
    invariants: tuple[str, ...] = ()
    """What holds of its inputs in every draw, a line each, such as `input 0: lower triangular`; of
    a problem whose correctness check was tried."""


def resize(source: str, constants: Mapping[str, object], *, where: str) -> str:
    """The source with top-level constants replaced; everything else stays to the letter.

    The one mechanism by which a problem's sizes follow the device class.

    Args:
        source: a problem file, or files; constants are those of the main one.
        constants: name to new value; each must be assigned once at the top level.
        where: how to name the file in an error.

    Raises:
        SuiteError: when a name is not a top-level constant of the file, or the file does not parse.
    """
    source, others = cut(source)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise SuiteError(f"{where}: not valid Python (line {error.lineno}: {error.msg})") from error
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "nested too deeply"
        raise SuiteError(f"{where}: not valid Python ({said})") from error
    spans: dict[str, tuple[int, int, int, int]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                value = node.value
                assert value.end_lineno is not None
                assert value.end_col_offset is not None
                spans[target.id] = (
                    value.lineno - 1, value.col_offset, value.end_lineno - 1, value.end_col_offset
                )  # fmt: skip
    unknown = sorted(set(constants) - set(spans))
    if unknown:
        raise SuiteError(f"{where}: no top-level constant named {', '.join(unknown)} to resize")
    lines = source.split("\n")
    for name in sorted(constants, key=lambda n: spans[n], reverse=True):
        first, start, last, end = spans[name]
        # ast counts columns in UTF-8 bytes
        head = lines[first].encode()[:start].decode()
        tail = lines[last].encode()[end:].decode()
        lines[first : last + 1] = [f"{head}{constants[name]!r}{tail}"]
    return "\n".join(lines) + others
