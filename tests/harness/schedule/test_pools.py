"""Each problem of a device has a process of its own; several run at once if there are lanes."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import CrowdedError, DisturbedError, SuiteError, UnfitError, WorkerError
from cudal1.harness.admission.trying import ReferenceTrial
from cudal1.harness.device.ceilings import Ceilings
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.pending import Asked, Pending
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.schedule.pools import Pools
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.harness.noting import LACKS_MEMORY, Noting, Said

pytestmark = pytest.mark.slow

NAMES = ("fake_silu", "fake_pair", "fake_chain")


@pytest.fixture(scope="module")
def device() -> Device:
    """A fake device on which three judges take turns, apart from the one that other tests lock."""
    plain = find_device(DeviceClass.FAKE)
    core = -1 if plain.worker_core is None else plain.worker_core
    cores = (core,) * 3 if plain.worker_core is not None else ()
    return plain.model_copy(update={"id": f"{plain.id}-lanes", "lane_cores": cores})


@pytest.fixture(scope="module")
def opened(device: Device, quick: EvalProtocol) -> Iterator[Pools]:
    """Open pools for all tests: the process that forks workers takes long to start."""
    if not device.lane_cores:
        pytest.skip("a machine with one core has no lanes")
    with Pools(device, quick) as opened:
        yield opened


@pytest.fixture
def pools(opened: Pools) -> Iterator[Pools]:
    """Return pools that have been asked nothing; what they know of problems goes with the test."""
    yield opened
    for lane in opened._lanes:
        lane.kill()
        lane.pending = None
    opened._lanes = deque(sorted(opened._lanes, key=lambda lane: lane.number))
    for kept in (opened._waiting, opened._fit, opened._crowded):
        kept.clear()


def test_several_problems_are_judged_at_once(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    def begun(name: str) -> Pending:
        problem = named_problem(name)
        return pools.judge(problem, Candidate(problem_id=problem.id, source=problem.null_source))

    pending = [begun(name) for name in (*NAMES, *NAMES)]
    assert len(pools._busy()) == len(NAMES)
    assert {lane.problem_id for lane in pools._busy()} == {named_problem(n).id for n in NAMES}
    for each in pending:
        verdict = each.result().verdict
        assert verdict.status is Status.CORRECT, verdict.reason
        assert verdict.measurement is not None
        assert verdict.measurement.certified <= 1.02
    assert not pools._busy()


def test_a_problem_that_is_at_a_lane_gets_another_one_of_the_same_cores(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    def begun(name: str) -> Pending:
        problem = named_problem(name)
        candidate = Candidate(problem_id=problem.id, source=problem.null_source)
        return pools.judge(problem, candidate, timing=False)

    for name in NAMES:  # a process at each lane
        assert begun(name).result().verdict.status is Status.CORRECT
    again = [begun(NAMES[0]) for _ in range(2)]
    assert len(pools._busy()) == 2
    assert [each.result().verdict.status for each in again] == [Status.CORRECT] * 2


def test_a_problem_that_ends_its_process_costs_only_itself(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    good = named_problem("fake_silu")
    ends = good.model_copy(update={"source": f"{good.source}\nimport os; os._exit(3)\n"})
    asked = [
        pools.judge(each, Candidate(problem_id=each.id, source=each.null_source), timing=False)
        for each in (ends, good, ends)
    ]
    for pending in (asked[0], asked[2]):
        with pytest.raises(SuiteError, match="ends its process"):
            pending.result()
    assert asked[1].result().verdict.status is Status.CORRECT


@pytest.mark.parametrize("most_judges", [1, 2])
def test_a_problem_that_finds_no_memory_gets_that_of_more_lanes(
    pools: Pools,
    named_problem: Callable[[str], Problem],
    monkeypatch: pytest.MonkeyPatch,
    most_judges: int,
) -> None:
    """Half of the lanes leave room for another one; all of them leave none."""
    problem = named_problem("fake_silu")
    real = Pool.judge

    def judge(self: Pool, *arguments: Any, **named: Any) -> Judgement:
        if self._num_lanes > most_judges:
            raise CrowdedError("no room")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Pool, "judge", judge)  # before the problem's process is forked
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    asked = [pools.judge(problem, candidate, timing=False) for _ in range(2)]
    assert all(each.result().verdict.status is Status.CORRECT for each in asked)
    assert {each.asked.width for each in asked} == {4 - most_judges}


def test_work_of_others_that_does_not_end_has_one_question_asked_alone(
    pools: Pools, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = named_problem("fake_silu")
    real = Pool.judge

    def judge(self: Pool, *arguments: Any, **named: Any) -> Judgement:
        if self._num_lanes > 1 and named["record"]:
            raise DisturbedError("at work for others")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Pool, "judge", judge)
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    first, second = (
        pools.judge(problem, candidate, timing=False, record=record) for record in (2.0, None)
    )
    assert [each.result().verdict.status for each in (first, second)] == [Status.CORRECT] * 2
    assert (first.asked.width, second.asked.width, first.num_tries) == (3, 1, 2)


def test_a_process_is_used_again_only_with_as_much_memory(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    problem = named_problem("fake_silu")
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    seen: list[int] = []
    for width in (3, 1, 1):
        pools._crowded = {problem.id: width}
        pending = pools.judge(problem, candidate, timing=False)
        (lane,) = pools._busy()
        assert lane.forked is not None
        seen.append(lane.forked.fileno())
        assert lane.width == width
        assert pending.result().verdict.status is Status.CORRECT
    assert seen[1] == seen[2]
    assert len([lane for lane in pools._lanes if lane.forked is not None]) == 1


def test_idle_processes_end_where_a_question_takes_up_their_memory(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    *small, large = (named_problem(name) for name in NAMES)
    pools._crowded = {large.id: 2}

    def judged(problem: Problem) -> None:
        candidate = Candidate(problem_id=problem.id, source=problem.null_source)
        pending = pools.judge(problem, candidate, timing=False)
        assert pending.result().verdict.status is Status.CORRECT

    for problem in (*small, large):
        judged(problem)
    assert _held(pools) == {small[1].id, large.id}
    judged(small[0])
    assert _held(pools) == {small[0].id, large.id}


def test_wide_questions_come_first_once_they_fill_the_queue(
    pools: Pools, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow ones would otherwise be asked one by one, each before the next wide one."""
    *narrow, wide = (named_problem(name) for name in NAMES)
    pools._crowded = {wide.id: 3}
    asked: list[int] = []
    real = pools._ask

    def ask(pending: Pending) -> None:
        asked.append(pending.asked.width)
        real(pending)

    monkeypatch.setattr(pools, "_ask", ask)

    def judged(problem: Problem) -> Pending:
        candidate = Candidate(problem_id=problem.id, source=problem.null_source)
        return pools.judge(problem, candidate, timing=False)

    pending = [judged(problem) for problem in (narrow[0], wide, wide, wide, narrow[1], narrow[0])]
    assert all(each.result().verdict.status is Status.CORRECT for each in pending)
    assert asked == [1, 3, 3, 3, 1, 1]


def test_a_problem_s_room_never_shrinks(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    problem = named_problem("fake_silu")
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    pending = Pending(pools, Asked(problem, "judge", (candidate,), {}))
    pools._crowded = {problem.id: 3}
    pools._give_room(pending, CrowdedError("no room"))
    assert (pending.asked.width, pools._crowded[problem.id]) == (3, 3)


@pytest.mark.parametrize(
    ("width", "share", "wanted"),
    [
        (1, 0.0, 2),  # unknown: half of three lanes
        (2, 0.0, 3),
        (1, 0.3, 2),
        (1, 0.5, 2),
        (1, 0.51, 3),  # more than half is all
        (2, 0.4, 3),  # it was not enough
    ],
)
def test_a_problem_gets_the_share_that_it_needs(
    pools: Pools, named_problem: Callable[[str], Problem], width: int, share: float, wanted: int
) -> None:
    problem = named_problem("fake_silu")
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    pending = Pending(pools, Asked(problem, "judge", (candidate,), {}, width))
    pools._give_room(pending, CrowdedError("no room", share))
    assert pending.asked.width == wanted


@pytest.mark.parametrize("num_lanes", [1, 2, 6])
@pytest.mark.parametrize("call_bytes", [1 << 20, 80 << 20])
def test_a_judge_with_too_small_a_share_of_a_gpu_says_how_much_it_needs(
    named_problem: Callable[[str], Problem],
    quick: EvalProtocol,
    monkeypatch: pytest.MonkeyPatch,
    num_lanes: int,
    call_bytes: int,
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (0, 1 << 30))
    device = find_device(DeviceClass.FAKE).model_copy(update={"device_class": DeviceClass.CUDA})
    pool = Pool(device, quick, num_lanes=num_lanes)
    problem, share = named_problem("fake_silu"), 8 * call_bytes / (1 << 30)
    if share * num_lanes <= 1 or num_lanes == 1:
        pool._require_room(problem, call_bytes)
        return
    with pytest.raises(CrowdedError) as crowded:
        pool._require_room(problem, call_bytes)
    assert crowded.value.share == share


def test_a_share_comes_back_from_the_process_of_a_problem() -> None:
    error = pickle.loads(pickle.dumps(CrowdedError("no room", 0.25)))
    assert (str(error), error.share) == ("no room", 0.25)


def test_a_candidate_that_claims_to_lack_memory_makes_no_other_run_alone(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    problem = named_problem("fake_silu")
    sources = ["raise RuntimeError('CUDA out of memory')", problem.null_source]
    candidates = [Candidate(problem_id=problem.id, source=source) for source in sources]
    first = pools.judge(problem, candidates[0], timing=False)
    assert first.result().verdict.status is Status.NO_BUILD
    other = pools.judge(problem, candidates[1], timing=False)
    assert other.result().verdict.status is Status.CORRECT
    assert (first.asked.width, other.asked.width) == (3, 1)


# --- trials --------------------------------------------------------------------------------------


def _asked(
    pools: Pools, problem: Problem, trial: ReferenceTrial, count: int = 1, timing: bool = False
) -> list[Pending]:
    sources = [f"{problem.null_source}\n# {number}" for number in range(count)]
    candidates = [Candidate(problem_id=problem.id, source=source) for source in sources]
    return [pools.judge(problem, each, timing=timing, trial=trial) for each in candidates]


def _changed(problem: Problem, lines: str) -> Problem:
    return problem.model_copy(update={"source": f"{problem.source}\n{lines}\n"})


def _held(pools: Pools) -> set[str]:
    """Return the problems that have a process."""
    return {lane.problem_id for lane in pools._lanes if lane.forked is not None}


def test_a_problem_is_tried_once_however_many_candidates_wait(
    pools: Pools, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem, trial = named_problem("fake_silu"), Noting(tmp_path)
    judgements = [each.result() for each in _asked(pools, problem, trial, count=4)]
    assert {each.verdict.status for each in judgements} == {Status.CORRECT}
    assert trial.num_tries(problem) == 1
    assert sum(each.found is not None for each in judgements) == 1


def test_a_trial_s_finding_holds_when_the_process_is_gone(
    pools: Pools, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem, trial = named_problem("fake_silu"), Noting(tmp_path)
    for _ in range(2):
        (pending,) = _asked(pools, problem, trial)
        assert pending.result().verdict.status is Status.CORRECT
        for lane in pools._lanes:
            lane.close()
    assert trial.num_tries(problem) == 1


def test_a_problem_that_cannot_be_judged_costs_its_own_candidates_alone(
    pools: Pools, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    good = named_problem("fake_silu")
    bad = _changed(good, "# not this one")
    trial = Noting(tmp_path, {bad.id: ("the output is constant",)})
    refused = _asked(pools, bad, trial, count=3)
    judged = _asked(pools, good, trial, count=2)
    for pending in refused:
        with pytest.raises(UnfitError) as caught:
            pending.result()
        assert str(caught.value) == f"{bad.key}: the output is constant"
        assert caught.value.found == Said("the output is constant")
    assert [each.result().verdict.status for each in judged] == [Status.CORRECT] * 2
    assert (trial.num_tries(bad), trial.num_tries(good)) == (1, 1)
    assert _held(pools) == {good.id}


def test_a_problem_that_lacks_memory_beside_others_is_tried_with_more(
    pools: Pools, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem = named_problem("fake_silu")
    trial = Noting(tmp_path, {problem.id: (LACKS_MEMORY, None)})
    (pending,) = _asked(pools, problem, trial)
    assert pending.result().verdict.status is Status.CORRECT
    assert pending.asked.width == 2
    assert trial.num_tries(problem) == 2


def test_a_problem_that_lacks_memory_alone_is_refused(
    pools: Pools, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem = named_problem("fake_silu")
    trial = Noting(tmp_path, {problem.id: (LACKS_MEMORY,)})
    for pending in _asked(pools, problem, trial, count=2):
        with pytest.raises(UnfitError, match="CUDA out of memory"):
            pending.result()
    assert trial.num_tries(problem) == 3
    assert _held(pools) == set()


def test_questions_that_need_more_lanes_wait_until_these_are_free(
    pools: Pools, named_problem: Callable[[str], Problem]
) -> None:
    small, large, all_of_it = (named_problem(name) for name in NAMES)
    pools._crowded = {large.id: 2, all_of_it.id: 3}
    asked = [
        pools.judge(each, Candidate(problem_id=each.id, source=each.null_source), timing=False)
        for each in (small, all_of_it, large)
    ]
    assert {lane.problem_id for lane in pools._busy()} == {small.id, large.id}
    assert [each.result().verdict.status for each in asked] == [Status.CORRECT] * 3


ODD = {
    "while True: pass": "its reference does not return within 5 s",
    "import os; os._exit(3)": "its reference ends its process (exit status 3)",
    "raise SystemExit(4)": "its reference ends its process (exit status 4)",
    "import os; os.abort()": "its reference crashes (SIGABRT)",
    "raise ValueError('no\\nshape')": "raises ValueError: no shape",
    "torch.ones(1 << 36)": "raises RuntimeError: ",
    "return x * 0.0": "",  # weak, but it can be judged
    "print('said'); import os; os.write(1, b'said')": "",
}
"""Lines in a reference's forward, each with a part of its reason; empty if it can be judged."""


def test_an_odd_reference_gets_its_reason_and_costs_no_other(
    quick: EvalProtocol, named_problem: Callable[[str], Problem]
) -> None:
    cpu = find_device(DeviceClass.CPU)
    good = named_problem("silu")
    forward = "    def forward(self, x):\n"
    problems = {
        lines: good.model_copy(
            update={"source": good.source.replace(forward, f"{forward}        {lines}\n")}
        )
        for lines in ODD
    }
    trial = ReferenceTrial(quick, max_reference_ms=60_000.0, call_limit_s=5.0)
    own = cpu.model_copy(update={"id": f"{cpu.id}-odd"})
    said: dict[str, str] = {}
    with Pools(own, quick) as opened:
        asked = {lines: _asked(opened, each, trial) for lines, each in problems.items()}
        for lines, (pending,) in asked.items():
            try:
                verdict = pending.result().verdict
                said[lines] = "" if verdict.status is Status.CORRECT else f"{verdict.reason}"
            except SuiteError as error:
                said[lines] = str(error).removeprefix(f"{problems[lines].key}: ")
        assert _held(opened) == {problems[lines].id for lines, reason in ODD.items() if not reason}
    assert [lines for lines, reason in ODD.items() if bool(reason) != bool(said[lines])] == []
    wrong = {lines: said[lines] for lines, reason in ODD.items() if reason not in said[lines]}
    assert wrong == {}
    assert [lines for lines, reason in said.items() if "\n" in reason] == []


def test_a_source_that_names_a_compiler_has_workers_that_have_imported_it(
    pools: Pools, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = pools.device.model_copy(update={"device_class": DeviceClass.CUDA})
    monkeypatch.setattr(pools, "device", on_gpu)
    problem = named_problem(NAMES[0])
    sources = [problem.null_source, f"{problem.null_source}\n# triton", problem.null_source]
    found = [
        pools._wants_compilers(
            Asked(problem, "judge", (Candidate(problem_id="", source=each),), {})
        )
        for each in sources
    ]
    assert found == [False, True, False]


def test_a_problem_has_other_workers_once_a_candidate_wants_compilers(
    pools: Pools, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Pools, "_wants_compilers", lambda _, asked: "triton" in asked.arguments[0].source
    )
    problem = named_problem(NAMES[0])
    used: list[bool] = []
    for source in (problem.null_source, f"{problem.null_source}\n# triton", problem.null_source):
        candidate = Candidate(problem_id=problem.id, source=source)
        pending = pools.judge(problem, candidate, timing=False)
        (lane,) = pools._busy()
        used.append(lane.has_compilers)
        assert pending.result().verdict.status is Status.CORRECT
    assert used == [False, True, True]
    assert pools._zygotes.source(compilers=True) is not pools._zygotes.source(compilers=False)


def test_a_measurement_of_ceilings_that_hangs_is_tried_once_more_and_blames_no_reference(
    device: Device,
    quick: EvalProtocol,
    named_problem: Callable[[str], Problem],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = named_problem("fake_silu")
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    known = Ceilings("cpu", core=None)
    known.again()
    begun = tmp_path / "begun"

    def ceilings(_: Pools) -> Ceilings:
        """Hang three times, each time in another process."""
        with begun.open("a+") as file:
            file.write("x")
        if len(begun.read_text()) <= 3:
            time.sleep(60)
        return known

    monkeypatch.setattr(Pools, "_ceilings", ceilings)
    monkeypatch.setattr("cudal1.harness.schedule.pools.PEAKS_LIMIT_S", 1.0)
    alone = device.model_copy(update={"id": f"{device.id}-alone"})
    with Pools(alone, quick) as opened:
        with pytest.raises(WorkerError, match=r"process that measures .* no answer within 1 s"):
            opened.judge(problem, candidate, timing=False).result()
        assert len(begun.read_text()) == 2
        verdict = opened.judge(problem, candidate, timing=False).result().verdict
    assert verdict.status is Status.CORRECT, verdict.reason
