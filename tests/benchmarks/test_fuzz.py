"""Tests of the fuzzer: its draws, its rules, and one minute of fuzzing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz import grammar, hunting, rules
from benchmarks.fuzz.actions import ENDS, PRINTS, RAISES
from benchmarks.fuzz.grammar import Author, Row
from benchmarks.fuzz.pieces import Expected, Odd
from benchmarks.fuzz.places import PLACES, action_piece
from benchmarks.fuzz.rules import Fault
from benchmarks.fuzz.running import Ran
from benchmarks.fuzz.source import problem_bytes, problem_text

ROOT = Path(__file__).parents[2]
AT_IMPORT, ZEROS = PLACES[0], next(place for place in PLACES if place.name == "on zeros")
RAISE, PRINT = action_piece(RAISES[0], AT_IMPORT), action_piece(PRINTS[0], AT_IMPORT)
PLAIN = Row(Odd())
LINE = "kernelbench/L1/01_p: cannot be judged: raises ValueError: said"


def _ran(
    code: int | None = 0, *, stderr: str = "", statuses: dict[int, str] | None = None, **more: Any
) -> Ran:
    statuses = {1: "correct"} if statuses is None else statuses
    verdicts = {number: [{"status": status, "reason": None}] for number, status in statuses.items()}
    stdout = json.dumps({"num_without": 1 - len(verdicts)})
    return replace(Ran((), code, stdout, stderr, 1.0, verdicts), **more)


@pytest.mark.slow
def test_the_same_seed_draws_the_same_rows() -> None:
    first, again, other = (grammar.draw(12, seed) for seed in (3, 3, 4))
    assert [row.name for row in first] == [row.name for row in again]
    assert not {row.name for row in first} & {row.name for row in other}


@pytest.mark.slow
def test_rows_that_wait_for_limits_can_be_omitted() -> None:
    assert any(row.stalls for row in grammar.draw(200, 0))
    assert not any(row.stalls for row in grammar.draw(50, 0, stalls=False))


@pytest.mark.slow
def test_every_piece_makes_its_own_source_that_python_parses() -> None:
    pieces = grammar.all_pieces()
    texts = {piece.name: problem_bytes(Odd((piece,))) for piece in pieces}
    assert len(texts) == len(pieces)
    assert len(set(texts.values())) == len(texts)
    for piece in pieces:
        if piece.place != "text" and piece.place != AT_IMPORT.name:
            compile(problem_text(Odd((piece,)).parts()), piece.name, "exec")


def test_the_expectation_of_a_problem_follows_from_its_pieces() -> None:
    assert Odd().expected is Expected.JUDGED
    assert Odd((RAISE,)).expected is Expected.REFUSED
    assert Odd((PRINT,)).expected is Expected.JUDGED
    assert Odd((PRINT, RAISE)).expected is Expected.REFUSED
    value_error = next(each for each in RAISES if each.name == "raises ValueError")
    assert action_piece(value_error, ZEROS).expected is Expected.JUDGED
    fork = next(each for each in ENDS if each.name == "forks and goes on in both")
    assert Odd((RAISE, action_piece(fork, ZEROS))).expected is Expected.EITHER


@pytest.mark.parametrize(
    ("row", "ran", "rule"),
    [
        (PLAIN, _ran(1, statuses={}), "a row is lost"),
        (PLAIN, _ran(1, statuses={}, stderr=f"{LINE}\n{LINE}\n"), "several lines"),
        (PLAIN, _ran(0, statuses={}, stderr=LINE), "exit code"),
        (PLAIN, _ran(1), "exit code"),
        (PLAIN, _ran(2), "exit code"),
        (PLAIN, _ran(137), "exit code"),
        (PLAIN, _ran(None), "does not end"),
        (PLAIN, _ran(stderr="Traceback (most recent call last):\nKeyError"), "a traceback"),
        (PLAIN, _ran(stderr="said\n"), "a line that names no row"),
        (PLAIN, _ran(stderr="a\x1b[2J\n"), "a line that nobody can read"),
        (PLAIN, _ran(stdout="said\n{}"), "standard output"),
        (PLAIN, _ran(stdout=""), "standard output"),
        (PLAIN, _ran(stdout='{"num_without": 3}'), "counts"),
        (PLAIN, _ran(left=("process: sleep",)), "something is left behind"),
        (PLAIN, _ran(1, statuses={}, stderr=LINE), "refused"),
        (PLAIN, _ran(statuses={1: "incorrect"}), "an honest copy is not correct"),
        (PLAIN, _ran(statuses={1: "crashed"}), "an honest copy is not correct"),
        (Row(Odd((RAISE,))), _ran(), "not refused"),
        (Row(Odd(), Author.WRONG), _ran(), "a wrong candidate is correct"),
        (Row(Odd(), Author.ODD, Odd((RAISE,))), _ran(), "a candidate that must fail is correct"),
        (
            Row(Odd(), Author.ODD, Odd((PRINT,))),
            _ran(statuses={1: "crashed"}),
            "a right candidate is not correct",
        ),
    ],
)
def test_a_run_that_breaks_a_rule_is_a_fault(row: Row, ran: Ran, rule: str) -> None:
    assert rule in {fault.rule for fault in rules.of_suite([row], ran)}


@pytest.mark.parametrize(
    ("row", "ran"),
    [
        (PLAIN, _ran()),
        (PLAIN, _ran(stderr="judging: 1 of 3\nnote: said\n")),
        (Row(Odd((RAISE,))), _ran(1, statuses={}, stderr=LINE)),
        (Row(Odd(), Author.WRONG), _ran(statuses={1: "incorrect"})),
        (Row(Odd(), Author.ODD, Odd((RAISE,))), _ran(statuses={1: "no_build"})),
    ],
)
def test_a_correct_run_has_no_fault(row: Row, ran: Ran) -> None:
    assert rules.of_suite([row], ran) == []


def test_a_pair_exits_with_2_exactly_when_a_line_replaces_the_verdict() -> None:
    correct, none = '{"status": "correct"}', ""
    assert rules.of_single(PLAIN, _ran(0, stdout=correct)) == []
    refused = Row(Odd((RAISE,)))
    assert rules.of_single(refused, _ran(2, stdout=none, stderr="model.py: said\n")) == []
    for code, stdout, stderr in [
        (2, none, ""),
        (2, correct, "model.py: said\n"),
        (0, none, ""),
        (1, correct, ""),
        (0, correct, "said\n"),
    ]:
        assert rules.of_single(PLAIN, _ran(code, stdout=stdout, stderr=stderr))


def test_a_fault_is_reduced_until_nothing_can_be_removed(tmp_path: Path) -> None:
    asked: list[str] = []

    def run(rows: Sequence[Row], folder: Path) -> tuple[list[Fault], Ran]:
        (folder / "work").mkdir()
        asked.append("; ".join(row.name for row in rows))
        guilty = [n for n, row in enumerate(rows, 1) if RAISE in row.problem.pieces]
        return [Fault("a row is lost", "", number) for number in guilty], _ran()

    hunt = hunting.Hunt(tmp_path, deadline=time.monotonic() + 100)
    hunt.look([PLAIN, Row(Odd((PRINT, RAISE))), Row(Odd((PRINT,)))], run)
    (found,) = hunt.found.values()
    assert [row.problem.pieces for row in found.rows] == [(RAISE,)]
    assert len(asked) > 2
    assert (found.folder / "command").read_text().startswith("cd work; cudal1")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_fuzzing_finds_no_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.fuzz", "--minutes", "1", "--seed", "0", "--quick"]
    command += ["--suites", "--rows", "12", "--no-shrinking"]
    command += ["--out", str(tmp_path), "--keep", str(tmp_path / "faults")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "fuzz_cpu.json").read_text())
    assert found["faults"] == []
    assert found["num_rows"] >= 15
