"""Tests of a source of verdicts: the ledger or the harness, subject to vetoes and rulings.

Lists of candidates go to all devices together; on a CPU candidates come one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.device.device import Device
from cudal1.harness.device.sharing import Sharing
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.judging_queue import Settle
from cudal1.ledger import Ledger
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.review import Ruling
from cudal1.selection.reward import speed_reward
from cudal1.services.judging import AT_ONCE, Pair, VerdictSource, verdict_source
from cudal1.settings.params import Params
from cudal1.verdict import SecondOpinion, Status, Verdict
from tests.services.test_reviewing import PASS, Judge
from tests.tasks.played import TOO_LARGE, PlayedPool, judged

VETO = json.dumps(
    {"is_cheat": True, "kind": "made_up", "quote": "return torch.softmax(x, 1)", "evidence": "no"}
)
PROBLEM = Problem(
    suite="toy",
    level=1,
    number=1,
    name="rows",
    split=Split.TRAIN,
    revision="r",
    device_class=DeviceClass.CPU,
    source="class Model: ...\n",
)
CANDIDATE = Candidate(problem_id=PROBLEM.id, source="def f(x):\n    return torch.softmax(x, 1)\n")


OTHER = PROBLEM.model_copy(update={"name": "columns", "number": 2, "source": "class Model: 2\n"})


def candidates(problem: Problem, count: int) -> list[Pair]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"def f(x): return x + {number}\n"))
        for number in range(count)
    ]


def verdict_by(judge: VerdictSource, *, timing: bool = True) -> Verdict:
    (verdict,) = judge.judge_all([(PROBLEM, CANDIDATE)], timing=timing)
    return verdict


class FakeQueue:
    """A queue of devices that answers the last candidate first."""

    lists: ClassVar[list[tuple[list[str], list[str]]]] = []
    """The devices and candidates of each list that was given to the queue."""
    too_large: ClassVar[set[str]] = set()

    def __init__(self, sharing: Sharing, protocol: EvalProtocol, settle: Settle, **_: Any) -> None:
        self._devices = sharing.devices
        self._protocol = protocol
        self._settle = settle

    def __enter__(self) -> FakeQueue:
        return self

    def __exit__(self, *_: object) -> None: ...

    def judge_all(
        self, work: Iterable[Pair], *, timing: bool
    ) -> Iterator[tuple[str, Verdict | Refusal]]:
        asked = list(work)
        self.lists.append(([each.id for each in self._devices], [c.id for _, c in asked]))
        for problem, candidate in reversed(asked):
            if problem.id in self.too_large:
                yield candidate.id, Refusal(problem.id, candidate.id, TOO_LARGE)
            else:
                said = judged(candidate, self._protocol, self._devices[0].kind)
                yield candidate.id, self._settle(problem, candidate, said)


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("asked", []), ("too_large", set())):
        monkeypatch.setattr(PlayedPool, name, value)
    for name, value in (("lists", []), ("too_large", set())):
        monkeypatch.setattr(FakeQueue, name, value)
    monkeypatch.setattr("cudal1.services.judging.OneDevice", PlayedPool)
    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", FakeQueue)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide four GPUs of one kind."""
    found = [
        Device(device_class=DeviceClass.CUDA, kind="gpu", id=f"GPU-{n}", worker_core=None, index=n)
        for n in range(4)
    ]
    monkeypatch.setattr("cudal1.harness.device.sharing.find_devices", lambda _: found)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("filter")
        yield opened


def params(*, is_judged: bool, above: float = 1.02) -> Params:
    """Return the shipped parameters; a reviewer, if any, is asked about gains from `above` on."""
    shipped = Params.load(Path(__file__).parents[2] / "params.yaml")
    changes: dict[str, Any] = {
        "provider": "anybody" if is_judged else None,
        "above": above,
        "above_record": above,
        "when_screened": False,
        "spot_share": 0.0,
    }
    judge = shipped.reviewer.model_copy(update=changes)
    return shipped.model_copy(update={"reviewer": judge})


def test_a_verdict_without_a_reviewer_stands_and_is_marked(ledger: Ledger) -> None:
    with verdict_source(ledger, params(is_judged=False)) as judge:
        verdict = verdict_by(judge)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.second_opinion is SecondOpinion.OFF


@pytest.mark.slow
def test_a_veto_removes_a_success_and_a_ruling_restores_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("cudal1.services.reviewing.provider_of", lambda name, settings: said)
    with verdict_source(ledger, params(is_judged=True)) as judge:
        verdict = verdict_by(judge)
        assert (verdict.status, speed_reward(verdict)) == (Status.HACKED, 0.0)
        assert verdict.second_opinion is SecondOpinion.ASKED
        assert verdict_by(judge, timing=False).status is Status.HACKED
        honest = Ruling(
            candidate_id=CANDIDATE.id,
            code_id="c",
            is_cheat=False,
            kind="none",
            evidence="it computes",
            ruled_at="2026-01-01T00:00:00Z",
        )
        ledger.add_ruling(honest)
        again = verdict_by(judge)
    assert again.status is Status.CORRECT
    assert judge.num_judged == 1


def test_a_later_reviewer_is_asked_about_known_verdicts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with verdict_source(ledger, params(is_judged=False)) as judge:
        verdict_by(judge)
    said = Judge(PASS)
    monkeypatch.setattr("cudal1.services.reviewing.provider_of", lambda name, settings: said)
    with verdict_source(ledger, params(is_judged=True)) as judge:
        verdict = verdict_by(judge)
        verdict_by(judge)
    assert verdict.status is Status.CORRECT
    assert len(said.prompts) == 1
    assert judge.num_judged == 0


def test_a_verdict_that_was_not_suspicious_when_judged_is_not_reviewed_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("cudal1.services.reviewing.provider_of", lambda name, settings: said)
    with verdict_source(ledger, params(is_judged=True, above=1e6)) as judge:
        assert verdict_by(judge).second_opinion is SecondOpinion.NOT_NEEDED
    with verdict_source(ledger, params(is_judged=True)) as judge:
        assert verdict_by(judge).status is Status.CORRECT
    assert said.prompts == []


def test_unreviewed_successes_are_counted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = Judge("error: HTTP 500")
    monkeypatch.setattr("cudal1.services.reviewing.provider_of", lambda name, settings: said)
    with verdict_source(ledger, params(is_judged=True)) as judge:
        assert verdict_by(judge).status is Status.CORRECT
    assert judge.num_unreviewed == 1
    assert "1 suspicious successes stand without a second opinion" in caplog.text


def on(ledger: Ledger, device_class: DeviceClass, *, num_policies: int = 0) -> VerdictSource:
    protocol = params(is_judged=False).protocol
    return VerdictSource(ledger, device_class, protocol, None, num_policies=num_policies)


@pytest.mark.parametrize(("num_policies", "judges"), [(0, 4), (1, 3)])
@pytest.mark.usefixtures("gpus")
def test_a_list_goes_to_all_gpus_together_except_those_of_a_policy(
    ledger: Ledger, num_policies: int, judges: int
) -> None:
    judge = on(ledger, DeviceClass.CUDA, num_policies=num_policies)
    asked = [*candidates(PROBLEM, 3), *candidates(OTHER, 2)]
    judge.judge_all(asked)
    (given,) = FakeQueue.lists
    assert given == ([f"GPU-{n}" for n in range(judges)], [c.id for _, c in asked])
    assert judge.width == AT_ONCE * judges


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_verdicts_come_in_order_and_equal_or_known_sources_are_not_judged_again(
    ledger: Ledger, request: pytest.FixtureRequest, device_class: DeviceClass
) -> None:
    if device_class is DeviceClass.CUDA:
        request.getfixturevalue("gpus")
    judge = on(ledger, device_class)
    first, *others = candidates(PROBLEM, 4)
    judge.judge_all([first])
    asked = [*others, first, *others]
    advanced: list[int] = []
    found = judge.judge_all(asked, advance=advanced.append)
    assert [verdict.candidate_id for verdict in found] == [c.id for _, c in asked]
    assert (judge.num_judged, judge.num_reused) == (4, 4)
    assert sum(advanced) == len(asked)


def test_candidates_on_a_cpu_are_judged_in_turn_in_this_process(ledger: Ledger) -> None:
    judge = on(ledger, DeviceClass.CPU)
    asked = candidates(PROBLEM, 3)
    judge.judge_all(asked)
    assert PlayedPool.asked == [candidate.id for _, candidate in asked]
    assert (FakeQueue.lists, judge.width) == ([], 1)


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_a_problem_that_cannot_be_judged_costs_one_line_and_no_other_candidate(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    device_class: DeviceClass,
) -> None:
    if device_class is DeviceClass.CUDA:
        request.getfixturevalue("gpus")
    for harness in (PlayedPool, FakeQueue):
        monkeypatch.setattr(harness, "too_large", {PROBLEM.id})
    judge = on(ledger, device_class)
    advanced: list[int] = []
    asked = [*candidates(PROBLEM, 2), *candidates(OTHER, 2)]
    found = judge.judge_possible(asked, advanced.append)
    assert [verdict is None for verdict in found] == [True, True, False, False]
    assert (judge.num_refused, sum(advanced)) == (2, 4)
    (said,) = [each.getMessage() for each in caplog.records if each.name == "cudal1"]
    assert said == (
        f"filter: {PROBLEM.key}: cannot be judged on {judge.device.kind}: {TOO_LARGE}; "
        "`dvc repro -f -s filter` tries again"
    )
    if device_class is DeviceClass.CPU:
        assert len(PlayedPool.asked) == 3, "what was refused is tried no more"


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_a_refusal_fails_a_list_that_needs_all_verdicts_and_loses_none(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    device_class: DeviceClass,
) -> None:
    if device_class is DeviceClass.CUDA:
        request.getfixturevalue("gpus")
    monkeypatch.setattr(PlayedPool, "too_large", {OTHER.id})
    monkeypatch.setattr(FakeQueue, "too_large", {PROBLEM.id})
    judge = on(ledger, device_class)
    with pytest.raises(WorkerError, match="lower its sizes"):
        judge.judge_all([*candidates(PROBLEM, 1), *candidates(OTHER, 1)])
    assert judge.num_judged == 1
    assert ledger.sql("from verdicts").height == 1
