"""The real judge confirms a claim, refuses one, and times under the paper's rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.checks import staged_check
from cudal1.harness.device.ceilings import Ceilings, Peaks
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.problem_workers import MAX_LENT, MEMORY_MARGIN, ProblemWorkers
from cudal1.harness.judge import ProblemJudge
from cudal1.harness.judgement import Judgement
from cudal1.harness.oracle.exactness import EXACT_INPUTS
from cudal1.harness.oracle.oracle import Draw
from cudal1.harness.oracle.roofline import Work
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.timing import claims
from cudal1.measurement import Measurement, Role
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol, Rule
from cudal1.verdict import FlagSource, Status

NamedProblem = Callable[[str], Problem]
MakeJudge = Callable[..., ProblemJudge]
SHORT = {"correctness_stages": (3,), "max_quads": 9, "burst_us": 500.0}
"""Settings for quick measurements: no test here depends on their quality."""


@pytest.fixture
def make_judge(pool: Pool, quick: EvalProtocol, named_problem: NamedProblem) -> Iterator[MakeJudge]:
    """Return a function that makes judges of one problem on the pool's device."""
    made: list[ProblemJudge] = []

    def make(**changes: object) -> ProblemJudge:
        assert pool._zygote is not None
        made.append(
            ProblemJudge(
                named_problem("linear"),
                device=pool.device,
                zygote=pool._zygote,
                protocol=EvalProtocol.model_validate({**quick.model_dump(), **SHORT, **changes}),
                ceilings=pool._ceilings,
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def _null(judge: ProblemJudge) -> Judgement:
    problem = judge.problem
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    return judge.judge(candidate, timing=True)


def _entries_begun(judge: ProblemJudge, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the entries of the workers begun from here on, except empty
    ones."""
    real, begun = judge._workers._begin, list[str]()

    def begin(entry: str, cpu_s: int | None, seed: int, source: str | None = None) -> Worker:
        begun.extend([entry] if entry else [])
        return real(entry, cpu_s, seed, source)

    monkeypatch.setattr(judge._workers, "_begin", begin)
    return begun


@pytest.fixture
def every_claim_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "is_doubtful", lambda *_, **__: True)


@pytest.mark.usefixtures("every_claim_is_doubtful")
def test_a_doubtful_claim_is_measured_again_in_fresh_processes(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    begun = _entries_begun(judge, monkeypatch)
    judgement = _null(judge)
    measurement = judgement.verdict.measurement
    assert measurement is not None, judgement.verdict.reason
    assert measurement.confirmed_on == judgement.verdict.device_id
    assert {sample.session for sample in judgement.samples} == {0, 1}
    # two seeds before the claim, and a third one
    assert sorted(begun) == [*["Model"] * 2, *["ModelNew"] * 3]


@pytest.mark.usefixtures("every_claim_is_doubtful")
def test_a_candidate_that_fails_the_second_time_has_failed(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    died = f"{judge.problem.null_source}\nraise RuntimeError('not here')\n"
    real, sources = judge._workers.candidate, iter([judge.problem.null_source, died])

    def candidate(given: Candidate) -> AbstractContextManager[Worker]:
        return real(given.model_copy(update={"source": next(sources)}))

    monkeypatch.setattr(judge._workers, "candidate", candidate)
    verdict = _null(judge).verdict
    assert (verdict.status, verdict.measurement) == (Status.NO_BUILD, None)
    assert "not here" in (verdict.reason or "")


@pytest.mark.usefixtures("every_claim_is_doubtful")
def test_a_candidate_that_draws_other_weights_the_second_time_is_given_the_references(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    same = judge.problem.null_source
    other = same.replace("super().__init__()", "super().__init__(); torch.rand(1)")
    assert other != same
    real, sources = judge._workers.candidate, iter([same, same, other, other])

    def candidate(given: Candidate) -> AbstractContextManager[Worker]:
        return real(given.model_copy(update={"source": next(sources)}))

    monkeypatch.setattr(judge._workers, "candidate", candidate)
    judgement = _null(judge)
    assert judgement.verdict.status is Status.CORRECT, judgement.verdict.reason
    assert judgement.verdict.properties is not None
    assert judgement.verdict.properties.draws_weights is False
    assert judgement.verdict.correctness is not None
    assert judgement.verdict.correctness.first_mismatch is None
    assert {sample.session for sample in judgement.samples} == {0, 1}
    assert next(sources, None) is None


@pytest.mark.slow
@pytest.mark.usefixtures("every_claim_is_doubtful")
def test_a_candidate_that_is_faster_than_physics_is_invalid(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    monkeypatch.setattr(claims, "is_impossible", lambda _: True)
    monkeypatch.setattr(judge._floor, "us", lambda: 0.01)
    verdict = _null(judge).verdict
    assert (verdict.status, verdict.measurement) == (Status.INVALID, None)
    assert "faster than this device can be" in (verdict.reason or "")
    assert [(f.kind, f.source) for f in verdict.flags] == [("below_floor", FlagSource.TIMING)]
    assert verdict.correctness is not None
    monkeypatch.undo()
    assert _null(judge).verdict.status is Status.CORRECT


def test_ceilings_are_measured_again_before_a_candidate_is_refused(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    floor = judge._floor
    floor._work, floor._ceilings = Work(num_bytes=1000, num_flops=0), Ceilings("cpu", core=None)
    rates = iter([10.0, 1000.0])  # a busy machine, and the same one when it is quiet
    monkeypatch.setattr(
        "cudal1.harness.device.ceilings.measure",
        lambda _: Peaks(((1000, next(rates)),), float32=1.0, half=1.0),
    )
    claim = Measurement(
        baseline=Baseline.EAGER,
        speedup=5.0,
        certified=4.0,
        alpha=0.01,
        num_quads=9,
        bucket_medians=(5.0,) * 7,
        bucket_variance=0.0,
        is_stable=True,
        reference_us=200.0,
        candidate_us=40.0,
        floor_us=floor.us(),
    )
    assert claim.floor_us == 100.0
    assert claims.is_impossible(claim)
    again = floor.doubted(claim)
    assert again.floor_us == 1.0
    assert not claims.is_impossible(again)


def test_a_floor_above_the_reference_s_own_time_is_dropped(make_judge: MakeJudge) -> None:
    judge = make_judge()
    judge._floor._work = Work(num_bytes=1 << 50, num_flops=0)
    measurement = _null(judge).verdict.measurement
    assert measurement is not None
    assert measurement.floor_us is None


@pytest.mark.slow
def test_a_floor_lies_below_the_reference_s_time(make_judge: MakeJudge) -> None:
    # the bursts are so long that the harness's own cost hardly counts
    measurement = _null(make_judge(burst_us=20_000.0)).verdict.measurement
    assert measurement is not None
    assert measurement.floor_us is not None
    assert 0 < measurement.floor_us < measurement.reference_us
    assert not measurement.is_at_roofline


@pytest.mark.slow
def test_the_paper_s_rule_times_pairs_until_its_window_is_over(make_judge: MakeJudge) -> None:
    judgement = _null(make_judge(rule=Rule.PAPER, window_s=0.5, max_bucket_variance=0.005))
    verdict = judgement.verdict
    assert verdict.measurement is not None, verdict.reason
    assert verdict.judge_s > 0.5
    assert verdict.measurement.alpha is None
    assert verdict.measurement.num_quads >= 7
    places = [(s.quad, s.position) for s in judgement.samples if s.session == 0]
    assert places == [(q, p) for q in range(verdict.measurement.num_quads) for p in range(2)]
    for first, second in zip(judgement.samples[::2], judgement.samples[1::2], strict=True):
        assert {first.role, second.role} == {Role.REFERENCE, Role.CANDIDATE}


def test_the_first_inputs_are_compared_with_exact_answers(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, exact = make_judge(correctness_stages=(3, 60)), list[Draw]()
    real = judge._oracle.exact_key
    monkeypatch.setattr(judge._oracle, "exact_key", lambda d: exact.append(d) or real(d))
    candidate = Candidate(problem_id=judge.problem.id, source=judge.problem.null_source)
    assert judge.judge(candidate, timing=False).verdict.status is Status.CORRECT
    assert EXACT_INPUTS <= len(exact) < 60


def test_only_inputs_of_the_first_stage_are_compared_with_exact_answers_on_a_gpu(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_check, "is_exact_first", _as_on_a_gpu)
    judge, exact = make_judge(correctness_stages=(3, 16)), list[Draw]()
    real = judge._oracle.exact_key
    monkeypatch.setattr(judge._oracle, "exact_key", lambda d: exact.append(d) or real(d))
    problem = judge.problem
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    assert judge.judge(candidate, timing=True).verdict.status is Status.CORRECT
    assert len(exact) == 3


def test_an_output_that_the_reference_does_not_agree_with_is_wrong_if_float64_says_so(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate is right in the first stage alone."""
    monkeypatch.setattr(staged_check, "is_exact_first", _as_on_a_gpu)
    judge = make_judge(correctness_stages=(3, 16))
    late = (
        "calls = [0]\nplain = torch.relu\n"
        "def changed(x):\n    calls[0] += 1\n    return plain(x) * (2 if calls[0] > 5 else 1)\n"
        "torch.relu = changed\n"
    )
    candidate = Candidate(problem_id=judge.problem.id, source=judge.problem.null_source + late)
    verdict = judge.judge(candidate, timing=False).verdict
    assert verdict.status is Status.INCORRECT
    assert verdict.correctness is not None
    assert verdict.correctness.stage == 1
    assert "wrong output" in (verdict.reason or "")


def _as_on_a_gpu(_oracle: object, stage: int, _num_inputs: int) -> bool:
    return stage == 1


# --- processes -----------------------------------------------------------------------------------


def test_a_reference_s_process_serves_again_unless_a_fresh_one_is_asked_for(
    make_judge: MakeJudge,
) -> None:
    judge = make_judge()
    with judge._workers.reference(fresh=False) as first:
        judge._costs._call_us(first, 1, 0.0)
    with judge._workers.reference(fresh=True) as another:
        assert another is not first
    with judge._workers.reference(fresh=False) as same:
        assert same is first
        assert same.is_alive()
    judge._zygote.settle()
    assert not another.is_alive()


def test_a_reference_s_process_is_replaced_after_a_number_of_uses(make_judge: MakeJudge) -> None:
    judge, seen = make_judge(), set[int]()
    for _ in range(2 * MAX_LENT):
        with judge._workers.reference(fresh=False) as worker:
            seen.add(id(worker))
    assert len(seen) == 2


def test_a_candidate_is_charged_no_memory_that_others_give_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is charged neither for workers that were dismissed before nor twice for its ring."""
    free = [0]

    def gives(num_bytes: int) -> Any:
        return lambda: free.__setitem__(0, free[0] + num_bytes)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free[0], 10_000))
    worker = SimpleNamespace(end=gives(30), close=gives(500), ring=SimpleNamespace(num_bytes=500))
    workers: Any = SimpleNamespace(
        _is_cuda=True, _memory=torch.cuda.mem_get_info, _zygote=SimpleNamespace(settle=gives(2000))
    )
    assert ProblemWorkers._released_by(workers, cast("Worker", worker)) == 530


@pytest.mark.slow
def test_a_candidate_that_takes_the_device_s_memory_has_crashed_and_no_other_is_blamed(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge()
    candidate = Candidate(problem_id=judge.problem.id, source=judge.problem.null_source)

    def short_of_memory(held: int) -> None:
        released = iter([held, 1000])
        monkeypatch.setattr(judge._workers, "_released_by", lambda _: next(released))
        with judge._workers.candidate(candidate):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(Failure, match="took the device's memory") as found:
        short_of_memory(MEMORY_MARGIN * 1000 + 1)
    assert found.value.status is Status.CRASHED
    with pytest.raises(
        WorkerError, match=r"too large for cpu: CUDA out of memory; lower its sizes"
    ):
        short_of_memory(MEMORY_MARGIN * 1000)
    assert _null(judge).verdict.status is Status.CORRECT


def test_all_workers_stand_still_between_their_bursts(make_judge: MakeJudge) -> None:
    """A worker that did not would be read faster: the judge would not wait for its warden."""
    judge = make_judge()
    with judge._workers.reference(fresh=True) as reference:
        judge._costs._call_us(reference, 1, 0.0)
        assert reference._is_frozen
        judge._costs.empty_us(1, reference)
    assert judge._workers.empty()._is_frozen


def test_a_claim_s_first_process_stands_still_while_the_second_is_measured(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, firsts, seen = make_judge(), list[Worker](), list[bool]()
    monkeypatch.setattr(claims, "is_doubtful", lambda *_, **__: True)
    monkeypatch.setattr(judge._workers, "make_room", firsts.append)
    real = judge._sessions.measure

    def session(worker: Worker, *arguments: Any, **options: Any) -> Measurement:
        if options["session"]:
            seen.append(worker is not firsts[0] and firsts[0]._is_frozen and firsts[0].is_alive())
        return real(worker, *arguments, **options)

    monkeypatch.setattr(judge._sessions, "measure", session)
    assert _null(judge).verdict.status is Status.CORRECT
    assert seen
    assert all(seen)
    judge._zygote.settle()
    assert not firsts[0].is_alive()


@pytest.mark.parametrize(("taken", "free", "ends"), [(1, 20, False), (18, 20, True), (1, 3, True)])
def test_a_claim_s_process_ends_earlier_if_another_might_not_fit_beside_it(
    taken: int, free: int, ends: bool
) -> None:
    dismissed: list[Any] = []
    workers: Any = SimpleNamespace(
        _is_cuda=True,
        _memory=lambda: (free << 30, 80 << 30),
        _free_bytes=(taken + free) << 30,
        _zygote=SimpleNamespace(dismiss=dismissed.append, settle=lambda: None),
    )
    worker: Any = object()
    ProblemWorkers.make_room(workers, worker)
    assert dismissed == ([worker] if ends else [])


def test_a_slow_reference_s_process_does_not_confirm(
    make_judge: MakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge(confirm_above=3.0, confirm_below=1.1)
    monkeypatch.setattr(judge._confirmation, "_is_cpu", False)
    asked: list[bool] = []

    def again(*_: Any, is_fresh: bool, **__: Any) -> Measurement:
        asked.append(is_fresh)
        return claim

    monkeypatch.setattr(judge._confirmation, "_again", again)
    candidate = Candidate(problem_id=judge.problem.id, source="")
    examination: Any = None
    for slower in (1.0, 1.05, 1.2):
        claim = _measurement(reference_us=100.0 * slower)
        monkeypatch.setattr(judge._sessions, "fastest_us", 100.0)
        judge._confirmation.confirm(candidate, claim, examination)
    assert asked == [False, False, True]


def _measurement(**changes: Any) -> Measurement:
    fields = {
        "baseline": Baseline.EAGER,
        "speedup": 5.0,
        "certified": 4.5,
        "num_quads": 9,
        "bucket_medians": (5.0,) * 7,
        "bucket_variance": 0.0,
        "is_stable": True,
        "alpha": 0.01,
        "reference_us": 100.0,
        "candidate_us": 20.0,
    }
    return Measurement.model_validate({**fields, **changes})
