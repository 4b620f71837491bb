"""A Problem: one KernelBench-style item and its reference source, as it is shown and judged.

Loading suites is `cudal1.suite`; running a problem is `cudal1.harness`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from cudal1.errors import SuiteError
from cudal1.files.source_files import cut
from cudal1.record import Record, content_id


class DeviceClass(StrEnum):
    """The kind of device that sizes were chosen for; speedups of two classes are never compared."""

    CPU = "cpu"
    CUDA = "cuda"
    FAKE = "fake"
    """An asynchronous device made of threads (`harness.worker.fake`): for tests; sized as a CPU."""


class Split(StrEnum):
    """The use of a problem: training, or evaluation alone."""

    TRAIN = "train"
    HELDOUT = "heldout"


PROBLEM_NAMES = ("Model", "get_inputs", "get_init_inputs")
"""Names that a problem's module defines."""


NULL_MARK = '\nassert "null test"\n'
"""The end of a null test's source. It makes the harness measure it in full: a candidate that is the
reference to the letter is otherwise known to be as fast (`harness.screen.sameness`)."""


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
    """Device class of the sizes in the source."""
    revision: str
    """Version of the suite that the problem came from."""
    source: str
    """The file with `PROBLEM_NAMES`, or all files (`source_files`), shown as it is judged."""

    @property
    def id(self) -> str:
        """The content id of the source: the same file is the same problem, whatever its name."""
        return content_id(self.source)

    @property
    def null_source(self) -> str:
        """The reference as a candidate for itself: the null test, which must gain nothing."""
        return self.as_candidate + NULL_MARK

    @property
    def as_candidate(self) -> str:
        """The reference as a candidate, to the letter: the harness knows it for a copy."""
        return re.sub(r"\bModel\b", "ModelNew", self.source)

    @property
    def key(self) -> str:
        """The name for people: `suite/L2/07_name`."""
        return f"{self.suite}/L{self.level}/{self.number:02d}_{self.name}"


class Admission(Record):
    """The decision whether a problem can be judged at all, with its reason."""

    problem_id: str
    admitted: bool
    reason: str | None = None
    """Reason of a rejection; None for an admitted problem."""
    invariants: tuple[str, ...] = ()
    """Properties of its inputs in every draw, a line each, such as `input 0: lower triangular`.
    Empty where the correctness check was not tried."""


def resize(source: str, constants: Mapping[str, object], *, where: str) -> str:
    """Return the source with top-level constants replaced; everything else stays to the letter.

    No other mechanism fits a problem's sizes to the device class.

    Args:
        source: a problem file, or files; only the main file's constants are replaced.
        constants: name to new value; each must be assigned once at the top level.
        where: name of the file in an error.

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
                    value.lineno - 1,
                    value.col_offset,
                    value.end_lineno - 1,
                    value.end_col_offset,
                )
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


class Unreadable(Problem):
    """A problem that keeps its place in its suite and is never tried, such as a binary file."""

    flaw: str = Field(exclude=True)
    """The fault of the problem; admission gives it as the reason."""
