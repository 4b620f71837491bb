"""Make the pages of docs that show an audit of the release, from its committed result.

python -m benchmarks.release.page [--result FILE]

Writes docs/release.md, and the block of README.md between two marks. Nothing on either is written
by hand, and neither shows a number while there is no result.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, ROOT
from benchmarks.release.rows import Which
from benchmarks.release.tables import sections, short
from cudal1.errors import ConfigError
from cudal1.files.text_file import read_text

RESULT = RESULTS / "release_h100.json"
PAGE, README = ROOT / "docs" / "release.md", ROOT / "README.md"
BEGIN, END = "<!-- python -m benchmarks.release.page -->", "<!-- end of it -->"
"""Marks in README.md, each on a line of its own."""
HEAD = Path(__file__).with_name("page.md")
"""Template above the tables, with names in braces."""


def page(found: Mapping[str, Any], *, name: str) -> str:
    """Return docs/release.md.

    Args:
        found: an audit's result.
        name: of the file that holds it.
    """
    head = read_text(HEAD).format(
        kind=found["kind"].upper(),
        revision=found["revision"],
        device=found["machine"]["device"],
        torch=found["machine"]["versions"]["torch"],
        harness=found["harness_version"],
        measured=found["measured"],
        result=name,
        max_claim=found["protocol"]["max_claim"],
        sure=1 - found["protocol"]["alpha"],
    )
    return "\n".join([head.rstrip("\n"), *sections(found)]).rstrip("\n") + "\n"


def block(found: Mapping[str, Any]) -> str:
    """Return the block between the marks of README.md."""
    side = found["sources"][Which.KERNELS]
    agreement, largest = side["agreement"], side["largest_claims"]
    lines = [
        f"**The kernels that the authors of CUDA-L1 released for {found['kind'].upper()}, judged** "
        f"on {found['machine']['device']} under KernelBench's contract:",
        "",
        *short(side),
    ]
    if agreement["num_agree"]:
        lines.append(
            f"Of {agreement['num_agree']} that agree with their reference in a plain check, "
            f"{agreement['num_agree_called_correct']} are called correct; of "
            f"{agreement['num_disagree']} that disagree beyond every class, "
            f"{agreement['num_disagree_called_correct']}."
        )
    if largest is not None:
        lines.append(
            f"The {len(largest['rows'])} largest claims carry {largest['share_of_claimed']:.0%} of "
            "the claimed mean."
        )
    return "\n".join([*lines, "[How to read it, and why](docs/release.md)."])


def between_marks(text: str, inner: str) -> str:
    """Return a text with a new block between its marks; an empty one leaves nothing between them.

    Raises:
        ConfigError: it has no marks.
    """
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end:
        raise ConfigError(f"README.md: no line {BEGIN} with {END} after it; put both where it goes")
    return before + begin + (f"{inner}\n" if inner else "") + end + after


def main() -> None:
    """Write both pages."""
    parser = Parser(
        prog="python -m benchmarks.release.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="of `benchmarks.release`")
    file: Path = parser.parse_args().result
    if not file.is_file():
        sys.exit(f"{file}: no such file; run python -m benchmarks.release first")
    found = json.loads(file.read_text(encoding="utf-8"))
    try:
        readme = between_marks(read_text(README), block(found))
    except ConfigError as error:
        sys.exit(str(error))
    README.write_text(readme, encoding="utf-8")
    PAGE.write_text(page(found, name=file.name), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} and {README.relative_to(ROOT)} show {file.name}")


if __name__ == "__main__":
    main()
