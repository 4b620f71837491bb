"""Compare our extraction from awkward answers with KernelBench's own, by kind of answer.

python -m benchmarks.answers.extraction [--kernelbench PATH]

The answers are those of tests/answers, each with the source that must come out of it or the reason
for having none. The peer's functions are `extract_first_code`, which KernelBench's scripts call,
and `extract_last_code`, read from a checkout at PATH. Nothing else of their file is run.

The peer is judged mildly: white space around a source and line ends do not count. Where there is no
source, any text without a `ModelNew` will do, since its evaluation then says so. All answers are
awkward on purpose: the shares say nothing of ordinary ones.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, print_table
from cudal1.extract.extract import extract
from tests.answers.saved import SavedAnswer, saved_answers

PEERS = ("extract_first_code", "extract_last_code")
LANGUAGES = ["python", "cpp"]
"""Languages as KernelBench's scripts give them."""
PLACES = ("src/kernelbench/utils.py", "src/utils.py")
_DEFINED = re.compile(r"^\s*(?:class\s+ModelNew\b|ModelNew\s*=)", re.MULTILINE)

Judge = Callable[[SavedAnswer], bool]
"""A function that returns whether an extraction does right with an answer."""


@dataclass(frozen=True)
class Row:
    """The results of one extraction on the answers of one kind."""

    extraction: str
    kind: str
    answers: int
    source_right: int
    reason_right: int
    wrong: int


def main() -> None:
    """Extract, print a table, and write results/extraction.json."""
    parser = Parser(
        prog="python -m benchmarks.answers.extraction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kernelbench", type=Path, help="a checkout; default: ours alone")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    answers = saved_answers()
    judges: dict[str, Judge] = {"cudal1": is_ours_right}
    peer = None
    if given.kernelbench is not None:
        place = next(place for place in PLACES if (given.kernelbench / place).exists())
        text = (given.kernelbench / place).read_text(encoding="utf-8")
        peer = {"file": place, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        judges |= peers(text)
    rows = [row for name, judge in judges.items() for row in by_kind(name, judge, answers)]
    show(rows, list(judges))
    given.out.mkdir(parents=True, exist_ok=True)
    found = {
        "benchmark": "extraction",
        "measured": time.strftime("%Y-%m-%d"),
        "answers": len(answers),
        "kernelbench": peer,
        "rows": [asdict(row) for row in rows],
        "wrong": {
            name: [f"{a.kind}/{a.name}" for a in answers if not judge(a)]
            for name, judge in judges.items()
        },
    }
    path = given.out / "extraction.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def is_ours_right(answer: SavedAnswer) -> bool:
    """Return whether source or reason agree to the letter."""
    extraction = extract(answer.text)
    return (extraction.source, extraction.reason) == (answer.source, answer.reason)


def peers(text: str) -> dict[str, Judge]:
    """Return KernelBench's functions, out of the text of its module."""
    wanted: list[ast.stmt] = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name in PEERS
    ]
    names: dict[str, Callable[[str, list[str]], str | None]] = {}
    exec(compile(ast.Module(wanted, []), "kernelbench", "exec"), {"re": re}, names)

    def judge(function: Callable[[str, list[str]], str | None]) -> Judge:
        return lambda answer: is_peer_right(answer, function(answer.text, list(LANGUAGES)))

    return {f"KernelBench {name}": judge(names[name]) for name in PEERS}


def is_peer_right(answer: SavedAnswer, found: str | None) -> bool:
    """Return whether the peer's text will do."""
    if answer.source is None:
        return found is None or not _DEFINED.search(found)
    return found is not None and found.strip().splitlines() == answer.source.strip().splitlines()


def by_kind(name: str, judge: Judge, answers: Sequence[SavedAnswer]) -> list[Row]:
    """Return a row for each kind, in order."""
    rows: list[Row] = []
    for kind in dict.fromkeys(answer.kind for answer in answers):
        mine = [answer for answer in answers if answer.kind == kind]
        right = [answer for answer in mine if judge(answer)]
        sources = sum(answer.source is not None for answer in right)
        rows.append(
            Row(name, kind, len(mine), sources, len(right) - sources, len(mine) - len(right))
        )
    return rows


def show(rows: Sequence[Row], names: Sequence[str]) -> None:
    """Print a table for each extraction, with its sum."""
    for name in names:
        mine = [row for row in rows if row.extraction == name]
        total = Row(
            name,
            "all",
            sum(row.answers for row in mine),
            sum(row.source_right for row in mine),
            sum(row.reason_right for row in mine),
            sum(row.wrong for row in mine),
        )
        header = [name, "answers", "source right", "reason right", "wrong"]
        print_table(
            header,
            [
                [row.kind, *map(str, (row.answers, row.source_right, row.reason_right, row.wrong))]
                for row in [*mine, total]
            ],
        )
        print()


if __name__ == "__main__":
    main()
