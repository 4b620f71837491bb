"""A bench: verdicts from the ledger or the harness, less what the judge or a person vetoes.

Lists of candidates go to all devices together; on a CPU one candidate comes after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.device import Device
from cudal1.harness.docket import Settle
from cudal1.harness.errand import Refusal
from cudal1.harness.sharing import Sharing
from cudal1.ledger import Ledger
from cudal1.params import Params
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.review import Ruling
from cudal1.reward import speed_reward
from cudal1.verdict import SecondOpinion, Status, Verdict
from tasks.judging import AT_ONCE, Bench, Pair, bench
from tests.tasks.played import TOO_LARGE, PlayedPool, judged
from tests.tasks.test_reviewing import PASS, Judge

VETO = json.dumps({
    "is_cheat": True, "kind": "made_up", "quote": "return torch.softmax(x, 1)", "evidence": "no"
})  # fmt: skip
PROBLEM = Problem(
    suite="toy", level=1, number=1, name="rows", split=Split.TRAIN, revision="r",
    device_class=DeviceClass.CPU, source="class Model: ...\n",
)  # fmt: skip
CANDIDATE = Candidate(problem_id=PROBLEM.id, source="def f(x):\n    return torch.softmax(x, 1)\n")


OTHER = PROBLEM.model_copy(update={"name": "columns", "number": 2, "source": "class Model: 2\n"})


def candidates(problem: Problem, count: int) -> list[Pair]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"def f(x): return x + {number}\n"))
        for number in range(count)
    ]


def verdict_by(judge: Bench, *, timing: bool = True) -> Verdict:
    (verdict,) = judge.judge_all([(PROBLEM, CANDIDATE)], timing=timing)
    return verdict


class FakeDocket:
    """Devices that answer the last first."""

    lists: ClassVar[list[tuple[list[str], list[str]]]] = []
    """Devices and candidates of each list that was given to them."""
    too_large: ClassVar[set[str]] = set()

    def __init__(self, sharing: Sharing, protocol: EvalProtocol, settle: Settle, **_: Any) -> None:
        self._devices = sharing.devices
        self._protocol = protocol
        self._settle = settle

    def __enter__(self) -> FakeDocket:
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
        monkeypatch.setattr(FakeDocket, name, value)
    monkeypatch.setattr("tasks.judging.OneDevice", PlayedPool)
    monkeypatch.setattr("tasks.judging.Docket", FakeDocket)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of one kind."""
    found = [
        Device(device_class=DeviceClass.CUDA, kind="gpu", id=f"GPU-{n}", worker_core=None, index=n)
        for n in range(4)
    ]
    monkeypatch.setattr("cudal1.harness.sharing.find_devices", lambda _: found)


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
        verdict = verdict_by(judge)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.second_opinion is SecondOpinion.OFF


def test_a_veto_takes_a_success_away_and_a_person_gives_it_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        verdict = verdict_by(judge)
        assert (verdict.status, speed_reward(verdict)) == (Status.HACKED, 0.0)
        assert verdict.second_opinion is SecondOpinion.ASKED
        assert verdict_by(judge, timing=False).status is Status.HACKED
        honest = Ruling(
            candidate_id=CANDIDATE.id, code_id="c", is_cheat=False, kind="none",
            evidence="it computes", ruled_at="2026-01-01T00:00:00Z",
        )  # fmt: skip
        ledger.add_ruling(honest)
        again = verdict_by(judge)
    assert again.status is Status.CORRECT
    assert judge.num_judged == 1


def test_a_judge_that_comes_later_is_asked_about_known_verdicts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(ledger, params(is_judged=False)) as judge:
        verdict_by(judge)
    said = Judge(PASS)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        verdict = verdict_by(judge)
        verdict_by(judge)
    assert verdict.status is Status.CORRECT
    assert len(said.prompts) == 1
    assert judge.num_judged == 0


def test_what_was_not_suspicious_when_it_was_judged_is_not_asked_about_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Judge(VETO)
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True, above=1e6)) as judge:
        assert verdict_by(judge).second_opinion is SecondOpinion.NOT_NEEDED
    with bench(ledger, params(is_judged=True)) as judge:
        assert verdict_by(judge).status is Status.CORRECT
    assert said.prompts == []


def test_who_stands_unreviewed_is_counted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = Judge("error: HTTP 500")
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: said)
    with bench(ledger, params(is_judged=True)) as judge:
        assert verdict_by(judge).status is Status.CORRECT
    assert judge.num_unreviewed == 1
    assert "1 suspicious successes stand without a second opinion" in caplog.text


def on(ledger: Ledger, device_class: DeviceClass, *, num_policies: int = 0) -> Bench:
    protocol = params(is_judged=False).protocol
    return Bench(ledger, device_class, protocol, None, num_policies=num_policies)


@pytest.mark.parametrize(("num_policies", "judges"), [(0, 4), (1, 3)])
@pytest.mark.usefixtures("gpus")
def test_a_list_goes_to_all_gpus_together_but_those_of_a_policy(
    ledger: Ledger, num_policies: int, judges: int
) -> None:
    judge = on(ledger, DeviceClass.CUDA, num_policies=num_policies)
    asked = [*candidates(PROBLEM, 3), *candidates(OTHER, 2)]
    judge.judge_all(asked)
    (given,) = FakeDocket.lists
    assert given == ([f"GPU-{n}" for n in range(judges)], [c.id for _, c in asked])
    assert judge.width == AT_ONCE * judges


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_verdicts_come_in_order_and_equal_sources_and_known_ones_are_not_judged_again(
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


def test_on_a_cpu_each_is_judged_in_its_turn_in_this_process(ledger: Ledger) -> None:
    judge = on(ledger, DeviceClass.CPU)
    asked = candidates(PROBLEM, 3)
    judge.judge_all(asked)
    assert PlayedPool.asked == [candidate.id for _, candidate in asked]
    assert (FakeDocket.lists, judge.width) == ([], 1)


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_a_problem_that_cannot_be_judged_costs_one_line_and_no_other(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture, device_class: DeviceClass,
) -> None:  # fmt: skip
    if device_class is DeviceClass.CUDA:
        request.getfixturevalue("gpus")
    for harness in (PlayedPool, FakeDocket):
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
def test_where_all_must_have_a_verdict_a_refusal_is_a_failure_that_loses_none(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    device_class: DeviceClass,
) -> None:  # fmt: skip
    if device_class is DeviceClass.CUDA:
        request.getfixturevalue("gpus")
    monkeypatch.setattr(PlayedPool, "too_large", {OTHER.id})
    monkeypatch.setattr(FakeDocket, "too_large", {PROBLEM.id})
    judge = on(ledger, device_class)
    with pytest.raises(WorkerError, match="lower its sizes"):
        judge.judge_all([*candidates(PROBLEM, 1), *candidates(OTHER, 1)])
    assert judge.num_judged == 1
    assert ledger.sql("from verdicts").height == 1
