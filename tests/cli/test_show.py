"""Tests that a candidate or a problem is found by its name, and shown with all that is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cudal1.candidate import Candidate
from cudal1.cli.show import show
from cudal1.ledger import Ledger
from cudal1.problem import Admission
from tests.ledger.conftest import Facts

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
STEERING = "\x1b[2J\u202e"
FACTS = Facts()
PROBLEM = FACTS.problem("silu").model_copy(update={"source": REFERENCE, "number": 8})
EXEMPLAR = Candidate(
    problem_id=PROBLEM.id, source=REFERENCE.replace("Model", "ModelNew") + "# an exemplar\n"
)
FASTER = Candidate(
    problem_id=PROBLEM.id,
    source=REFERENCE.replace("Model", "ModelNew").replace(
        "x * torch.sigmoid(x)", f"torch.nn.functional.silu(x)  # {STEERING}"
    ),
)
VETOED = Candidate(problem_id=PROBLEM.id, source=f"{FASTER.source}# vetoed\n")
FAILED = Candidate(problem_id=PROBLEM.id, source="class ModelNew: failed\n")
SEVERAL = FACTS.problem("silu").model_copy(update={"source": "# other\n", "suite": "other"})

Shown = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a ledger with one problem that has four candidates, and one of the same name."""
    folder = tmp_path_factory.mktemp("shown") / "data"
    with Ledger.open(folder) as ledger:
        ledger.begin("filter")
        for problem in (PROBLEM, SEVERAL):
            admission = Admission(problem_id=problem.id, admitted=True, invariants=("sorted",))
            ledger.add_problem(problem, admission)
        ledger.add_protocol(FACTS.protocol)
        for key, candidate in (("a", EXEMPLAR), ("b", FASTER), ("c", VETOED), ("d", FAILED)):
            shown = {"exemplar_ids": (EXEMPLAR.id,), "exemplar_scores": (1.2,), "turn": 2}
            changes = {"problem_id": PROBLEM.id} | (shown if key == "b" else {})
            completion = FACTS.completion(key).model_copy(update=changes)
            if key == "b":
                completion = completion.model_copy(update={"follows": "d"})
            ledger.add_completion(completion, candidate, None)
        ledger.add_verdict(FACTS.correct(EXEMPLAR, 1.2), FACTS.samples())
        ledger.add_verdict(FACTS.correct(FASTER, 1.6), FACTS.samples(40))
        ledger.add_verdict(FACTS.correct(VETOED, 9.0), [])
        ledger.add_verdict(FACTS.failed(FAILED, f"ValueError: {STEERING}"), [])
        ledger.add_review(FACTS.review(VETOED))
        ledger.export()
    return folder


@pytest.fixture
def shown(data: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Return a function that runs the command and returns what it printed."""

    def run(which: str, *, exemplars: bool = False, as_json: bool = False) -> str:
        show(which, exemplars=exemplars, data=data, as_json=as_json)
        return capsys.readouterr().out

    return run


def refused(data: Path, capsys: pytest.CaptureFixture[str], which: str) -> str:
    with pytest.raises(typer.Exit) as caught:
        show(which, exemplars=False, data=data, as_json=False)
    assert caught.value.exit_code == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    return said.err


def test_a_candidate_is_shown_with_verdict_timing_lineage_and_difference(shown):
    text = shown(FASTER.id)
    for expected in (
        "cudal1/L1/08_silu",
        "fused_operator: One operator of PyTorch",
        "CORRECT and certified 1.60x faster",
        "10 quads",
        f"turn 2 after {FAILED.id}; its prompt showed {EXEMPLAR.id} (1.20x)",
        "ancestors  1 by exemplars",
        "used by    filter",
        "-        return x * torch.sigmoid(x)",
        "+        return torch.nn.functional.silu(x)",
    ):
        assert expected in text
    assert f"--- {EXEMPLAR.id}" not in text


def test_exemplars_are_compared_on_request(shown):
    text = shown(FASTER.id, exemplars=True)
    assert f"--- {EXEMPLAR.id}" in text
    assert "-# an exemplar" in text


def test_words_of_a_candidate_do_not_steer_a_terminal(shown):
    for text in (shown(FASTER.id), shown(FAILED.id), shown(PROBLEM.id)):
        assert not set(STEERING[:1] + STEERING[-1:]) & set(text)
    assert "<U+001B>[2J<U+202E>" in shown(FASTER.id)


def test_a_veto_is_shown_in_place_of_a_gain(shown):
    text = shown(VETOED.id)
    assert "CHEATS" in text
    assert "certified 9.00x" not in text
    assert "a cheat, cached_output: keeps answers — memo[x]" in text


def test_a_failure_is_shown_with_its_reason(shown):
    text = shown(FAILED.id)
    assert "CRASHED" in text
    assert "ValueError" in text


def test_a_problem_is_shown_with_its_best_and_the_curve_of_the_best_so_far(shown):
    text = shown("cudal1/L1/8")
    for expected in (
        "admitted",
        "sorted",
        "4 on cpu",
        f"best       {FASTER.id} 1.60x by replay; fused_operator",
        "rise       1.60x",
        "return x * torch.sigmoid(x)",
    ):
        assert expected in text
    assert f"best       {VETOED.id}" not in text


@pytest.mark.parametrize(
    "name", ["cudal1/L1/08_silu", "cudal1/level1/8", "L1/8", "1/8", PROBLEM.id, PROBLEM.id[:6]]
)
def test_a_problem_is_found_by_key_and_id(shown, name):
    assert json.loads(shown(name, as_json=True))["problem_id"] == PROBLEM.id


@pytest.mark.parametrize("name", [FASTER.id, FASTER.id[:6], FASTER.id.upper()])
def test_a_candidate_is_found_by_id_and_its_beginning(shown, name):
    found = json.loads(shown(name, as_json=True))
    assert (found["kind"], found["candidate_id"]) == ("candidate", FASTER.id)
    assert found["source"] == FASTER.source
    assert found["techniques"] == ["fused_operator"]
    assert len(found["verdicts"][0]["quads"]) == 10


def test_a_name_of_several_problems_is_refused_with_their_ids(data, capsys):
    said = refused(data, capsys, "silu")
    assert "stands for several problems" in said
    assert PROBLEM.id in said
    assert SEVERAL.id in said


def test_an_unknown_id_is_refused_with_the_nearest(data, capsys):
    said = refused(data, capsys, FASTER.id[:-1] + "zz")
    assert f"nearest: {FASTER.id}" in said
    assert "nearest: silu" in refused(data, capsys, "sillu")


@pytest.mark.parametrize("which", ["a", "abc", "", "%", "x" * 10_000, "'; drop table x; --", "1/9"])
def test_a_name_of_nothing_is_refused_in_one_line(data, capsys, which):
    assert refused(data, capsys, which)


def test_a_folder_without_a_ledger_is_one_line(tmp_path, capsys):
    assert "no ledger here" in refused(tmp_path / "data", capsys, "silu")


def test_exemplars_of_a_problem_are_refused(data, capsys):
    with pytest.raises(typer.Exit):
        show(PROBLEM.id, exemplars=True, data=data, as_json=False)
    assert "goes with a candidate" in capsys.readouterr().err
