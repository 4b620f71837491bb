"""Tests of stage `search`: equal shares for methods, evolve's exemplars, and a killed method."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

from cudal1.ledger import Ledger
from tests.journals import verdicts_in, whole_lines
from tests.project import Project, make_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROUNDS, PER_ROUND = 3, 2
FUSER = {"kind": "rewriter", "teacher": "fuser"}
METHODS = {
    "vanilla": ("vanilla", "none", FUSER),
    "random": ("evolve", "random", FUSER),
    "island": ("evolve", "island", FUSER),
    "island-again": ("evolve", "island", FUSER),
    "refine": ("refine", "none", FUSER),
    "recorded": ("vanilla", "none", {"kind": "replay", "path": None}),
}


def only_search(params: dict[str, Any]) -> None:
    params["search"].update(
        num_problems=3,
        rounds=ROUNDS,
        answers_per_round=PER_ROUND,
        num_islands=2,
        island_reset_every=2,
        methods={
            name: {
                "method": method,
                "sampling": sampling,
                "reads": "data/shards/problems",
                "provider": provider,
            }
            for name, (method, sampling, provider) in METHODS.items()
        },
    )


def run(project: Project, method: str) -> dict[str, Any]:
    done = project.run("tasks.search", "--item", method)
    assert done.returncode == 0, done.stdout
    return project.metrics(f"search-{method}")


def product(project: Project, method: str) -> list[dict[str, Any]]:
    return pl.read_parquet(project.data / "search" / f"{method}.parquet").to_dicts()


def answers(project: Project, method: str) -> list[dict[str, Any]]:
    """Return a method's answers with their outcomes, in the order of attempts."""
    with Ledger.read(project.data) as ledger:
        return ledger.sql(
            "select c.completion_id, c.problem_id, c.attempt, c.exemplar_ids, c.island, "
            "c.exemplar_scores, c.turn, c.follows, "
            "c.candidate_id, v.status, v.certified "
            "from members m join completions c on m.kind = 'completions' "
            "and m.key = c.completion_id left join verdicts v using (candidate_id) "
            "where m.stage = $stage and c.finish_reason <> 'exhausted' "
            "order by c.problem_id, c.attempt",
            {"stage": f"search@{method}"},
        ).to_dicts()


@dataclass(frozen=True)
class Interrupted:
    """The state of a method's ledger after a kill, and the effect of a restart."""

    num_before: int
    """The number of verdicts in the method's journal."""
    before: dict[str, str]
    after: dict[str, str]
    num_judged_again: int


def verdict_times(project: Project) -> dict[str, str]:
    with Ledger.read(project.data) as ledger:
        rows = ledger.sql("select candidate_id, judged_at from verdicts").to_dicts()
    return {row["candidate_id"]: row["judged_at"] for row in rows}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = make_project(tmp_path_factory.mktemp("search"))
    made.edit_params(only_search)
    done = made.run("tasks.problems")
    assert done.returncode == 0, done.stdout
    return made


@pytest.fixture(scope="module")
def interrupted(project: Project) -> Interrupted:
    """Kill the island method, first of all, in its second round, and run it again."""

    def num_judged() -> int:
        return len(verdicts_in(whole_lines(project.data, "search@island")))

    project.kill_when(lambda: num_judged() >= 7, "tasks.search", "--item", "island")
    num_before, before = num_judged(), verdict_times(project)
    again = run(project, "island")["num_judged"]
    return Interrupted(num_before, before, verdict_times(project), again)


@pytest.fixture(scope="module")
def ran(project: Project, interrupted: Interrupted) -> Project:
    for method in ("vanilla", "random", "refine"):
        run(project, method)
    return project


def test_a_killed_method_loses_no_verdict_and_makes_none_twice(interrupted: Interrupted) -> None:
    kept = {key: interrupted.after.get(key) for key in interrupted.before}
    assert kept == interrupted.before
    assert interrupted.num_judged_again == len(interrupted.after) - interrupted.num_before


def test_a_restarted_method_asks_the_questions_of_an_uninterrupted_one(ran: Project) -> None:
    metrics = run(ran, "island-again")
    assert metrics["num_judged"] == 0
    straight, resumed = (
        [row["completion_id"] for row in answers(ran, method)]
        for method in ("island-again", "island")
    )
    assert straight == resumed


@pytest.mark.parametrize("method", ["vanilla", "random", "island", "refine"])
def test_every_method_gives_each_problem_the_same_number_of_answers(
    ran: Project, method: str
) -> None:
    rows = product(ran, method)
    assert len(rows) == 3
    assert {row["num_answers"] for row in rows} == {ROUNDS * PER_ROUND}


@pytest.mark.parametrize("method", ["vanilla", "random", "island", "refine"])
def test_every_answer_is_judged_and_the_best_one_counts(ran: Project, method: str) -> None:
    found = answers(ran, method)
    assert all(row["status"] for row in found if row["candidate_id"])
    for row in product(ran, method):
        mine = [a for a in found if a["problem_id"] == row["problem_id"]]
        certified = [a["certified"] for a in mine if a["status"] == "correct"]
        assert row["num_successes"] == len(certified)
        assert row["certified"] == max(certified, default=None)


@pytest.mark.parametrize("method", ["random", "island", "refine"])
def test_the_first_round_of_each_method_equals_vanilla_s(ran: Project, method: str) -> None:
    first, vanilla = (
        [row["completion_id"] for row in answers(ran, name) if row["attempt"] < PER_ROUND]
        for name in (method, "vanilla")
    )
    assert first == vanilla


def test_vanilla_shows_no_exemplar(ran: Project) -> None:
    assert not any(row["exemplar_ids"] for row in answers(ran, "vanilla"))


@pytest.mark.parametrize("method", ["random", "island"])
def test_evolve_shows_its_own_results_of_earlier_rounds_only(ran: Project, method: str) -> None:
    found = answers(ran, method)
    num_shown = 0
    for row in found:
        earlier = {
            other["candidate_id"]
            for other in found
            if other["problem_id"] == row["problem_id"]
            and other["status"] == "correct"
            and other["attempt"] // PER_ROUND < row["attempt"] // PER_ROUND
        }
        assert set(row["exemplar_ids"]) <= earlier
        num_shown += len(row["exemplar_ids"])
    assert num_shown > 0


def test_only_answers_of_later_rounds_have_an_island(ran: Project) -> None:
    for row in answers(ran, "island"):
        assert (row["island"] is None) == (row["attempt"] < PER_ROUND)
    assert {row["island"] for row in answers(ran, "vanilla")} == {None}


def test_refine_shows_each_answer_the_attempts_of_its_own_trajectory(ran: Project) -> None:
    found = {(row["problem_id"], row["attempt"]): row for row in answers(ran, "refine")}
    for (problem, attempt), row in found.items():
        before = [found[problem, each] for each in range(attempt % PER_ROUND, attempt, PER_ROUND)]
        assert row["turn"] == len(before) + 1
        assert row["follows"] == (before[-1]["completion_id"] if before else None)
        with_code = [each for each in before if each["candidate_id"]]
        assert row["exemplar_ids"] == [each["candidate_id"] for each in with_code]
        assert row["exemplar_scores"] == [each["certified"] or 0.0 for each in with_code]
    assert {row["turn"] for row in found.values()} == set(range(1, ROUNDS + 1))


def test_methods_without_trajectories_have_one_turn(ran: Project) -> None:
    assert {(row["turn"], row["follows"]) for row in answers(ran, "random")} == {(1, None)}


def test_an_exhausted_provider_ends_its_method(project: Project) -> None:
    metrics = run(project, "recorded")
    assert 0 < metrics["num_answers"] < 3 * ROUNDS * PER_ROUND
    assert {row["num_asked"] for row in product(project, "recorded")} == {ROUNDS * PER_ROUND}


def test_a_split_without_problems_is_reported(project: Project) -> None:
    path = project.data / "problems.parquet"
    aside = path.with_suffix(".aside")
    shutil.copy(path, aside)
    try:
        frame = pl.read_parquet(aside)
        frame.filter(pl.col("split") == "train").write_parquet(path)
        done = project.run("tasks.search", "--item", "vanilla")
    finally:
        aside.replace(path)
    assert done.returncode == 2
    assert "no heldout problem was admitted" in done.stdout


Edit = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda method: method["provider"].update(teacher="nobody"), "nobody"),
        (
            lambda method: method.update(
                reads="data/policy/rl",
                provider={
                    "kind": "local",
                    "path": "data/policy/rl",
                    "temperature": None,
                    "top_p": None,
                    "max_tokens": 9,
                    "batch_size": 1,
                },
            ),
            "data/policy/rl is missing; run `dvc repro search@vanilla`",
        ),
    ],
)
def test_a_provider_that_cannot_be_asked_is_named(project: Project, edit: Edit, named: str) -> None:
    path = project.folder / "params.yaml"
    before = path.read_text()
    try:
        project.edit_params(lambda params: edit(params["search"]["methods"]["vanilla"]))
        done = project.run("tasks.search", "--item", "vanilla")
    finally:
        path.write_text(before)
    assert done.returncode == 2
    assert named in done.stdout
    assert "Traceback" not in done.stdout
