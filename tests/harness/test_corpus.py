"""Every known cheat ends in its verdict class; every honest twin earns what it should."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.builds.builder import Builder
from cudal1.harness.builds.toolchain import COMPILES
from cudal1.harness.judge import ProblemJudge
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.screen.screen import Severity, severity
from cudal1.measurement import Measurement
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from tests.harness.conftest import UntilMeasured, patiently
from tests.harness.corpus import EXPLOITS, GROUPS, HONEST, Case, cases, class_of, is_lawful

Judge = Callable[..., Judgement]
TESTS = Path(__file__).parents[1]

QUIET = 1e-4
"""Bucket variance above which a gain of two per cent is lost in the noise."""

ELSEWHERE = {
    "A20": "harness/timing/test_noise.py::test_one_impossible_case_is_clipped_to_the_highest_claim",
    "A23": "harness/timing/test_noise.py::test_clocks_that_rise_and_fall_earn_nothing",
    "A24": "harness/timing/test_noise.py::test_the_luckiest_of_many_clones_earns_nothing",
    "A36": "harness/test_judge.py::test_no_gain_counts_where_work_is_not_needed",
    "A45": "harness/honest/one_matmul.py",
    # an attack of our own: files with the names of modules, in the folder that a judge starts in
    "A51": "cli/test_surroundings.py::test_a_judge_imports_nothing_from_where_it_is_started",
}
"""Entries of the catalogue that are no candidates or no cheats, and the tests that try them."""
ON_A_GPU_ALONE = {"A21"}
CATALOGUE = {f"A{number:02}" for number in range(1, 52)}


@pytest.fixture(scope="module")
def layers(judge: Judge) -> tuple[str, ...]:
    return judge("silu", "class ModelNew: pass").verdict.sandbox


@pytest.mark.slow
@patiently
@pytest.mark.parametrize("case", EXPLOITS, ids=lambda case: case.name)
def test_an_exploit_ends_in_the_class_that_its_header_names(
    case: Case, judge: Judge, layers: tuple[str, ...], until_measured: UntilMeasured
) -> None:
    if lacks := case.missing(layers):  # an attack that nothing stops must not be tried
        pytest.skip(f"this machine grants no {lacks}")

    def missing() -> object:
        verdict = judge(case.problem, case.source, case.contract).verdict
        if class_of(verdict) in case.accepted:
            return None
        # chance decides whether it is stopped, so no strict xfail; docs/limits.md names each
        if case.still_open:
            pytest.xfail(f"known hole: {case.still_open}")
        if case.lawful is not None and class_of(verdict) == "gain":
            honest = judge(case.problem, case.lawful.source, case.contract).verdict
            if is_lawful(verdict, honest):
                return ("no more than lawful", verdict)
        # on a busy machine it gains nothing, and a candidate without gain has only a few checks
        assert class_of(verdict) == "no_gain", (verdict.reason, verdict.measurement)
        return ("not caught", verdict)

    until_measured(case.problem, missing)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["silu", "fake_silu"])
def test_the_reference_is_judged_normally_after_all_exploits(
    problem: str, judge: Judge, named_problem: Callable[[str], Problem]
) -> None:
    verdict = judge(problem, named_problem(problem).null_source).verdict
    assert class_of(verdict) in GROUPS["correct"], verdict.reason


@pytest.fixture
def compile_ahead(
    pool: Pool, quick: EvalProtocol, tmp_path: Path
) -> Callable[[Problem, Candidate], None]:
    """Return a function that compiles ahead as a fleet's builder does, so that the pool finds
    builds."""

    def compiled(problem: Problem, candidate: Candidate) -> None:
        assert pool._zygote is not None
        with Builder([pool.device], quick, tmp_path, num_workers=1) as builder:
            assert builder.begin(problem, candidate).result() is None
            pool._zygote.builds.give(candidate.id, builder.content(candidate))

    return compiled


@pytest.mark.slow
@patiently
@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_twin_earns_what_its_header_says_without_an_alarm(
    case: Case,
    judge: Judge,
    layers: tuple[str, ...],
    until_measured: UntilMeasured,
    named_problem: Callable[[str], Problem],
    compile_ahead: Callable[[Problem, Candidate], None],
) -> None:
    if lacks := case.missing(layers):
        pytest.skip(f"this machine has no {lacks}")
    if COMPILES in case.source:
        problem = named_problem(case.problem)
        compile_ahead(problem, Candidate(problem_id=problem.id, source=case.source))

    def missing() -> object:
        verdict = judge(case.problem, case.source, case.contract).verdict
        assert class_of(verdict) in GROUPS["correct"], verdict.reason
        assert [flag for flag in verdict.flags if severity(flag) is Severity.ALARM] == []
        return None if class_of(verdict) in case.accepted else ("not certified", verdict)

    until_measured(case.problem, missing)


@pytest.mark.slow
@patiently
def test_two_per_cent_are_certified_for_a_true_gain_and_nothing_for_none(
    fake_pool: Pool, named_problem: Callable[[str], Problem], until_measured: UntilMeasured
) -> None:
    fine = fake_pool.protocol.model_copy(
        update={"certify_within": 0.05, "dead_zone": 1.01, "max_quads": 40}
    )
    problem = named_problem("fake_wait")
    twin = next(case for case in HONEST if case.name == "two_per_cent")
    assert fake_pool._zygote is not None
    judge = ProblemJudge(
        problem,
        device=fake_pool.device,
        protocol=fine,
        zygote=fake_pool._zygote,
        ceilings=fake_pool._ceilings,
    )

    def measured(source: str) -> Measurement:
        verdict = judge.judge(Candidate(problem_id=problem.id, source=source), timing=True).verdict
        assert verdict.measurement is not None, verdict.reason
        return verdict.measurement

    def missing(source: str, certified: float) -> object:
        measurement = measured(source)
        return None if measurement.certified == certified else (f"no {certified}", measurement)

    def is_quiet() -> bool:
        return measured(problem.null_source).bucket_variance <= QUIET

    try:
        for source, certified in ((problem.null_source, 1.0), (twin.source, 1.01)):
            until_measured(problem.name, partial(missing, source, certified), is_quiet)
    finally:
        judge.close()


# --- the catalogue is covered --------------------------------------------------------------------


@pytest.mark.parametrize("entry", sorted(CATALOGUE))
def test_an_entry_of_the_catalogue_is_tried_somewhere(entry: str) -> None:
    if any(case.id == entry for case in EXPLOITS):
        return
    if entry in ON_A_GPU_ALONE:
        assert any(case.id == entry for case in cases("exploits_cuda"))
        return
    file, _, name = ELSEWHERE[entry].partition("::")
    assert (TESTS / file).exists()
    assert not name or f"def {name}(" in (TESTS / file).read_text()


@pytest.mark.parametrize("folder", ["exploits", "honest", "exploits_cuda", "honest_cuda"])
def test_a_header_is_complete_and_names_known_things(
    folder: str, named_problem: Callable[[str], object]
) -> None:
    statuses = GROUPS["correct"] | GROUPS["stopped"]
    for case in cases(folder):
        assert re.search(r"^expect: \S", case.source, re.MULTILINE), case.name
        assert case.accepted <= statuses, case.name
        assert case.id in {"", *CATALOGUE}, case.name
        assert named_problem(case.problem), case.name
        ast.parse(case.source)


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        ("", None),
        ("freezer", None),
        ("python3", None),
        ("torch", None),
        ("landlock", "landlock"),
        ("no_such_thing", "no_such_thing"),
    ],
)
def test_a_case_names_what_the_machine_lacks(
    needs: str, missing: str | None, tmp_path: Path
) -> None:
    case = Case(tmp_path / "case.py")
    case.path.write_text(f'"""A twin.\n\nneeds: {needs}\n"""\n')
    assert case.missing(["freezer"]) == missing
