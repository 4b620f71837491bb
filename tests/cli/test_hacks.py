"""Tests of a person's rulings on the reviewer's vetoes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.candidate import Candidate, Completion
from cudal1.hack_case import HackCase
from cudal1.ledger import Ledger
from cudal1.llm.reviewer.questions import code_id
from cudal1.review import Opinion, Review

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCE = "class ModelNew:\n    # my secret\n    memo = {}\n"
CANDIDATE = Candidate(problem_id="p", source=SOURCE)
OTHER = Candidate(problem_id="p", source="class ModelNew: ...\n")


@pytest.fixture(scope="module")
def suspect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a ledger with a candidate that the reviewer has vetoed, and one without a veto."""
    folder = tmp_path_factory.mktemp("suspect") / "data"
    completion = Completion(
        id="r",
        stage="filter",
        provider="reviewer",
        problem_id="p",
        prompt_id="q",
        template_id="t",
        attempt=0,
        text="…",
        finish_reason="stop",
    )
    opinion = Opinion(is_cheat=True, kind="cached_output", quote="memo = {}", evidence="keeps it")
    with Ledger.open(folder) as ledger:
        ledger.begin("filter")
        ledger.add_completion(completion.model_copy(update={"id": "c"}), CANDIDATE, None)
        ledger.add_candidate(OTHER)
        ledger.add_review(
            Review(
                completion=completion,
                candidate_id=CANDIDATE.id,
                reviewer_id="j",
                trigger="above 3x",
                code_id=code_id(CANDIDATE.problem_id, CANDIDATE.source),
                case_ids=(),
                opinion=opinion,
            )
        )
        ledger.export()
    return folder


@pytest.fixture(autouse=True)
def own_ledger(suspect: Path, tmp_path: Path) -> None:
    """Copy the ledger for one test: making one takes longer than most questions to it."""
    shutil.copytree(suspect, tmp_path / "data")


def vetoed(tmp_path: Path, candidate: Candidate = CANDIDATE) -> str | None:
    with Ledger.read(tmp_path / "data") as ledger:
        veto = ledger.veto(candidate)
    return None if veto is None else veto.source.value


def test_a_veto_is_listed_as_waiting(run: Run) -> None:
    said = run("hacks", "list").stdout
    assert f"{CANDIDATE.id}  waits for you: cached_output" in said
    (row,) = json.loads(run("hacks", "list", "--json").stdout)
    assert row["seen_by"] == "reviewer"


def test_a_candidate_is_shown_with_its_reviews(run: Run) -> None:
    said = run("hacks", "show", CANDIDATE.id[:8]).stdout
    assert "# my secret" in said
    assert "reviewer: a cheat, cached_output: keeps it (asked because: above 3x)" in said


def cases(tmp_path: Path) -> list[HackCase]:
    with Ledger.read(tmp_path / "data") as ledger:
        return ledger.cases()


def test_a_confirmed_veto_is_a_case_until_it_is_dismissed(run: Run, tmp_path: Path) -> None:
    done = run("hacks", "confirm", CANDIDATE.id)
    assert done.returncode == 0, done.stderr
    assert vetoed(tmp_path) == "person"
    (case,) = cases(tmp_path)
    assert (case.kind, case.evidence, case.id) == ("cached_output", "keeps it", CANDIDATE.id)
    run("hacks", "dismiss", CANDIDATE.id)
    assert cases(tmp_path) == []


@pytest.mark.parametrize(
    "wrong", [("--kind", "Not Snake"), ("--evidence", "\u200b"), ("--kind", "none")]
)
def test_a_refused_ruling_changes_nothing(run: Run, tmp_path: Path, wrong: tuple[str, str]) -> None:
    done = run("hacks", "confirm", CANDIDATE.id, *wrong)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert vetoed(tmp_path) == "reviewer"
    assert cases(tmp_path) == []


def test_stages_that_must_run_again_are_shown_as_commands(run: Run) -> None:
    said = run("hacks", "confirm", CANDIDATE.id).stdout
    assert "    dvc repro -f -s filter\n    dvc repro\n" in said


def test_an_id_may_be_written_in_capitals(run: Run) -> None:
    assert run("hacks", "show", CANDIDATE.id[:8].upper()).returncode == 0


def test_shown_text_cannot_steer_a_terminal(run: Run, tmp_path: Path) -> None:
    hostile = Candidate(problem_id="p", source="x = '\x1b[2J\u202e'\n")
    with Ledger.open(tmp_path / "data") as ledger:
        ledger.begin("rl")
        ledger.add_candidate(hostile)
        ledger.export()
    said = run("hacks", "show", hostile.id).stdout
    assert said == "x = '\\x1b[2J\\u202e'\n"


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_mistake_creates_no_ledger(run: Run, tmp_path: Path, where: str) -> None:
    (tmp_path / "here").mkdir()
    assert run("hacks", "dismiss", CANDIDATE.id, "--data", where).returncode == 2
    assert list(tmp_path.glob("*here/*")) == []


def test_a_dismissed_veto_is_lifted(run: Run, tmp_path: Path) -> None:
    run("hacks", "dismiss", CANDIDATE.id)
    assert vetoed(tmp_path) is None


def test_the_last_ruling_holds(run: Run, tmp_path: Path) -> None:
    run("hacks", "dismiss", CANDIDATE.id)
    run("hacks", "confirm", CANDIDATE.id, "--kind", "stale", "--evidence", "look twice")
    assert vetoed(tmp_path) == "person"


def test_a_cheat_without_a_veto_can_be_confirmed_with_kind_and_evidence(
    run: Run, tmp_path: Path
) -> None:
    done = run("hacks", "confirm", OTHER.id)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "give --kind and --evidence" in done.stderr
    run("hacks", "confirm", OTHER.id, "--kind", "does_nothing", "--evidence", "see class")
    assert vetoed(tmp_path, OTHER) == "person"


def test_rulings_survive_the_loss_of_the_database(run: Run, tmp_path: Path) -> None:
    run("hacks", "confirm", CANDIDATE.id)
    run("hacks", "confirm", OTHER.id, "--kind", "does_nothing", "--evidence", "see class")
    (tmp_path / "data" / ".ledger.duckdb").unlink()
    assert vetoed(tmp_path) == vetoed(tmp_path, OTHER) == "person"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["confirm", "abc"], "give 6 characters"),
        (["show", "zzzzzz"], "no such candidate here"),
        (["confirm", CANDIDATE.id, "--kind", "Not Snake"], "kind"),
        (["list", "--data", "nowhere"], "nowhere: no ledger here"),
        (["dismiss", CANDIDATE.id, "--data", "nowhere"], "nowhere: no ledger here"),
        (["dismiss", OTHER.id], "nobody has vetoed"),
    ],
)
def test_a_mistake_gives_one_line(run: Run, arguments: list[str], words: str) -> None:
    done = run("hacks", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert words in done.stderr


def test_json_output_holds_the_reviews(run: Run) -> None:
    said = json.loads(run("hacks", "show", CANDIDATE.id[:8], "--json").stdout)
    assert (said["candidate_id"], said["source"]) == (CANDIDATE.id, SOURCE)
    assert [row["seen_by"] for row in said["said"]] == ["reviewer"]


@pytest.mark.parametrize(("word", "is_cheat"), [("confirm", True), ("dismiss", False)])
def test_json_output_holds_a_ruling(run: Run, word: str, is_cheat: bool) -> None:
    said = json.loads(run("hacks", word, CANDIDATE.id, "--json").stdout)
    assert (said["candidate_id"], said["is_cheat"]) == (CANDIDATE.id, is_cheat)
    assert said["used_by"] == ["filter"]
