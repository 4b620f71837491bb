"""Tests that tests count a journal as the ledger reads it, wherever a kill truncates it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.ledger import Ledger, database
from tests.journals import acknowledged, times_of, verdicts_in, whole_lines
from tests.ledger.conftest import Facts

pytestmark = pytest.mark.slow

STAGE = "filter"
WORD = b"judged_at"
"""A word in every line that holds a verdict, far before the end of the line."""


def known_to_the_ledger(folder: Path) -> dict[str, str]:
    """Return the verdicts that a reader finds."""
    with Ledger.read(folder) as ledger:
        return times_of(ledger.sql("from verdicts").to_dicts())


def lose_databases(folder: Path) -> None:
    """Remove the database of stages and the copy for readers."""
    (folder / ".ledger.duckdb").unlink(missing_ok=True)
    (folder / database.SNAPSHOT).unlink(missing_ok=True)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Make the journal of a stage that was killed after two verdicts; its database is lost, too."""
    facts = Facts()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin(STAGE)
        ledger.add_completion(facts.completion("a"), facts.candidate(), None)
        for number in range(2):
            candidate = facts.candidate(f"class ModelNew: x = {number}")
            ledger.add_verdict(facts.correct(candidate), facts.samples())
    lose_databases(tmp_path)
    return tmp_path / "journal" / f"{STAGE}.jsonl"


def cuts(journal: Path) -> list[int]:
    """Return lengths to which a kill may cut the last line: about its ends and about the word."""
    content = journal.read_bytes()
    begin, word = content[:-1].rindex(b"\n") + 1, content.rindex(WORD)
    return [begin, begin + 1, word + len(WORD) - 1, word + len(WORD), len(content) - 1]


def test_a_half_written_line_is_not_a_verdict_even_when_it_holds_the_word(
    journal: Path, tmp_path: Path
) -> None:
    content = journal.read_bytes()
    begin = content[:-1].rindex(b"\n") + 1
    assert WORD in content[begin:-1]
    counted = verdicts_in(content[:begin].split(b"\n")[:-1])
    assert len(counted) == 1
    for length in range(begin, len(content)):
        journal.write_bytes(content[:length])
        assert verdicts_in(whole_lines(tmp_path, STAGE)) == counted, length


def test_the_ledger_finds_the_counted_lines(journal: Path, tmp_path: Path) -> None:
    content = journal.read_bytes()
    for length in [*cuts(journal), len(content)]:
        journal.write_bytes(content[:length])
        counted = verdicts_in(whole_lines(tmp_path, STAGE))
        assert len(counted) == (2 if length == len(content) else 1)
        assert counted == known_to_the_ledger(tmp_path), length
        lose_databases(tmp_path)


def test_the_half_written_line_is_cut_off_and_all_earlier_lines_stay(
    journal: Path, tmp_path: Path
) -> None:
    content = journal.read_bytes()
    facts = Facts()
    for length in cuts(journal):
        journal.write_bytes(content[:length])
        acknowledged = whole_lines(tmp_path, STAGE)
        with Ledger.open(tmp_path) as ledger:
            ledger.begin(STAGE)
            ledger.add_completion(facts.completion("after"), None, "none")
        lose_databases(tmp_path)
        assert whole_lines(tmp_path, STAGE)[: len(acknowledged)] == acknowledged, length
        with Ledger.open(tmp_path) as ledger:
            ledger.begin(STAGE)
            assert ledger.completion("a") is not None, length
            assert ledger.completion("after") is not None, length
        lose_databases(tmp_path)
        assert verdicts_in(acknowledged) == known_to_the_ledger(tmp_path), length


def test_readers_and_the_next_stage_know_the_line_of_a_kill_between_journal_and_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts()
    first, second = (facts.correct(facts.candidate(f"class ModelNew: x = {i}")) for i in range(2))

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with Ledger.open(tmp_path) as ledger:
        ledger.begin(STAGE)
        ledger.add_verdict(first, facts.samples())
        monkeypatch.setattr(ledger, "_insert", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.add_verdict(second, facts.samples())
    lines = whole_lines(tmp_path, STAGE)
    assert len(verdicts_in(lines)) == 2
    assert len(verdicts_in(acknowledged(lines))) == 1
    assert verdicts_in(lines) == known_to_the_ledger(tmp_path)
    with Ledger.open(tmp_path) as ledger:
        ledger.begin(STAGE)
    assert verdicts_in(lines) == known_to_the_ledger(tmp_path)


def test_a_missing_journal_has_no_lines(tmp_path: Path) -> None:
    assert whole_lines(tmp_path, STAGE) == []
    assert verdicts_in([]) == {}
