"""A bench: verdicts from the ledger or the harness, less what the judge or a person vetoes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.device import Device
from cudal1.harness.judge import Judgement
from cudal1.ledger import Ledger
from cudal1.params import Params
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.review import Ruling
from cudal1.reward import speed_reward
from cudal1.verdict import SecondOpinion, Status
from tasks.judging import bench
from tests.tasks.test_reviewing import PASS, VERDICT, Judge

VETO = json.dumps({
    "is_cheat": True, "kind": "made_up", "quote": "return torch.softmax(x, 1)", "evidence": "no"
})  # fmt: skip
PROBLEM = Problem(
    suite="toy", level=1, number=1, name="rows", split=Split.TRAIN, revision="r",
    device_class=DeviceClass.CPU, source="class Model: ...\n",
)  # fmt: skip
CANDIDATE = Candidate(problem_id=PROBLEM.id, source="def f(x):\n    return torch.softmax(x, 1)\n")


class FakePool:
    """A harness that finds everybody four times as fast, on whatever machine it is."""

    def __init__(self, device: Device, protocol: EvalProtocol, *, wait_s: float) -> None:
        self._device = device
        self._protocol = protocol

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def judge(self, problem: Problem, candidate: Candidate, **_: object) -> Judgement:
        """Correct, 4x."""
        changes = {
            "problem_id": problem.id, "candidate_id": candidate.id,
            "protocol_id": self._protocol.id, "device_kind": self._device.kind,
        }  # fmt: skip
        return Judgement(VERDICT.model_copy(update=changes), ())


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.judging.Pool", FakePool)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("filter")
        yield opened


def params(*, is_judged: bool, above: float = 1.02) -> Params:
    """The shipped ones, asked about every gain from `above` on, if at all."""
    shipped = Params.load(Path(__file__).parents[2] / "params.yaml")
    changes: dict[str, Any] = {
        "provider": "anybody" if is_judged else None, "above": above, "above_record": above,
        "when_screened": False, "spot_share": 0.0,
    }  # fmt: skip
    judge = shipped.hack_judge.model_copy(update=changes)
    return shipped.model_copy(update={"hack_judge": judge})


def test_without_a_judge_a_verdict_says_so_and_stands(ledger: Ledger) -> None:
    with bench(ledger, params(is_judged=False)) as judge:
        verdict = judge.verdict(PROBLEM, CANDIDATE)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.second_opinion is SecondOpinion.OFF


def test_a_veto_takes_a_success_away_and_a_person_gives_it_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        verdict = judge.verdict(PROBLEM, CANDIDATE)
        assert (verdict.status, speed_reward(verdict)) == (Status.HACKED, 0.0)
        assert verdict.second_opinion is SecondOpinion.ASKED
        assert judge.check(PROBLEM, CANDIDATE).status is Status.HACKED
        honest = Ruling(
            candidate_id=CANDIDATE.id, code_id="c", is_cheat=False, kind="none",
            evidence="it computes", ruled_at="2026-01-01T00:00:00Z",
        )  # fmt: skip
        ledger.add_ruling(honest)
        again = judge.verdict(PROBLEM, CANDIDATE)
    assert again.status is Status.CORRECT
    assert judge.num_judged == 1


def test_a_judge_that_comes_later_is_asked_about_known_verdicts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(ledger, params(is_judged=False)) as judge:
        judge.verdict(PROBLEM, CANDIDATE)
    said = Judge(PASS)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        verdict = judge.verdict(PROBLEM, CANDIDATE)
        judge.verdict(PROBLEM, CANDIDATE)
    assert verdict.status is Status.CORRECT
    assert len(said.prompts) == 1
    assert judge.num_judged == 0


def test_what_was_not_suspicious_when_it_was_judged_is_not_asked_about_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True, above=1e6)) as judge:
        assert judge.verdict(PROBLEM, CANDIDATE).second_opinion is SecondOpinion.NOT_NEEDED
    with bench(ledger, params(is_judged=True)) as judge:
        assert judge.verdict(PROBLEM, CANDIDATE).status is Status.CORRECT
    assert said.prompts == []


def test_who_stands_unreviewed_is_counted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = Judge("error: HTTP 500")
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        assert judge.verdict(PROBLEM, CANDIDATE).status is Status.CORRECT
    assert judge.num_unreviewed == 1
    assert "1 suspicious successes stand without a second opinion" in caplog.text
