"""Properties that hold around every judgement, whatever the candidate does."""

from __future__ import annotations

import gc
import os
import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from cudal1 import interrupt
from cudal1.candidate import Candidate
from cudal1.errors import DeviceError
from cudal1.harness.device.device import find_device
from cudal1.harness.exchange import costs
from cudal1.harness.exchange.burst import Burst
from cudal1.harness.judgement import Judgement
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import MAX_LEAVING
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.timing.statistics import evidence
from cudal1.measurement import Doubt
from cudal1.problem import NULL_MARK, DeviceClass, Problem
from cudal1.processes import SET
from cudal1.protocol import EvalProtocol
from cudal1.verdict import FlagSource, Status, Verdict
from tests.harness.conftest import Judge, UntilMeasured, patiently

NamedProblem = Callable[[str], Problem]
OpenPool = Callable[[], AbstractContextManager[Pool]]
PR_SET_NAME = 15
SECRET = "a-key-that-nobody-else-may-see"
INHERITED = {
    *SET,
    "HOME",
    "LC_CTYPE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PWD",
    "TMPDIR",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_VEC_ISA_OK",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "CUPY_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "CXX",
    "PYTORCH_NVCC",
    "CUDAL1_PYTHON",
}
"""Names of environment variables that a worker may have: public ones, with values of our own."""
CALL = "x * torch.sigmoid(x)"


def _source(body: str, *, top: str = "") -> str:
    """Return a candidate's source with `body` as its forward; `self.calls` counts from 1."""
    return (
        "import os, signal, time\nimport torch\nimport torch.nn as nn\n"
        + textwrap.dedent(top)
        + "\n\nclass ModelNew(nn.Module):\n    calls = 0\n\n    def forward(self, x):\n"
        + "        self.calls += 1\n"
        + textwrap.indent(textwrap.dedent(body), " " * 8)
    )


DEATHS: dict[str, tuple[str, Status]] = {
    "raises": ("raise RuntimeError('no')", Status.CRASHED),
    "raises_what_is_no_exception": ("raise KeyboardInterrupt", Status.CRASHED),
    "leaves": ("os._exit(0)", Status.CRASHED),
    "kills_itself": ("os.kill(os.getpid(), signal.SIGABRT); os.abort()", Status.CRASHED),
    "segfaults": ("import ctypes; ctypes.string_at(8)", Status.CRASHED),
    "overflows_the_stack": ("f = lambda f: f(f)\nreturn f(f)", Status.CRASHED),
    "takes_all_memory": ("return [torch.ones(1 << 26) for _ in range(99)][0]", Status.CRASHED),
    "hangs": (f"while self.calls > 2: pass\nreturn {CALL}", Status.TIMED_OUT),
    "sleeps_and_ignores_signals": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"while self.calls > 2: time.sleep(1)\nreturn {CALL}",
        Status.TIMED_OUT,
    ),
    "forks_and_leaves": ("if os.fork() == 0:\n    time.sleep(600)\nos._exit(0)", Status.CRASHED),
    "stops_itself": (
        f"if self.calls > 2: os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)\nreturn {CALL}",
        Status.TIMED_OUT,
    ),
}
BUILD_DEATHS: dict[str, str] = {
    "is_not_python": "def forward(:",
    "has_no_module": "x = 1",
    "leaves_at_import": "import os; os._exit(0)",
    "raises_at_import": "raise SystemExit",
    "holds_a_lone_surrogate": "x = '\ud800'",
    "holds_a_null": "x = 1\0",
    "is_too_long": "#" * (1 << 20) + "\n",
    "is_of_ten_megabytes": "#" * 10_000_000,
}


def _judge(pool: Pool, problem: Problem, source: str, *, timing: bool = False) -> Judgement:
    return pool.judge(problem, Candidate(problem_id=problem.id, source=source), timing=timing)


def _silu(pool: Pool, named_problem: NamedProblem) -> Problem:
    """Return the SiLU problem for the device of the pool."""
    return named_problem("fake_silu" if pool.device.kind == "fake" else "silu")


def _stats() -> dict[int, list[str]]:
    """Return name, state and parent of every process, by process id."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        # a process may end while we look
        with suppress(FileNotFoundError, ProcessLookupError):
            if entry.name.isdigit():
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                found[int(entry.name)] = [name.partition("(")[2], *rest.split()[:2]]
    return found


def _named(name: str) -> set[int]:
    return {process for process, stat in _stats().items() if stat[0] == name and stat[1] != "Z"}


def _children() -> set[int]:
    return {process for process, stat in _stats().items() if stat[2] == str(os.getpid())}


def _num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- deaths --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", DEATHS)
def test_the_next_candidate_is_judged_normally_after_one_that_dies(
    how: str, each_pool: Pool, named_problem: NamedProblem
) -> None:
    body, status = DEATHS[how]
    problem = _silu(each_pool, named_problem)
    died = _judge(each_pool, problem, _source(body)).verdict
    assert (died.status, died.measurement) == (status, None), died.reason
    following = _judge(each_pool, problem, problem.null_source).verdict
    assert following.status is Status.CORRECT, following.reason


@pytest.mark.slow
@pytest.mark.parametrize("how", BUILD_DEATHS)
def test_a_broken_source_ends_in_no_build(
    how: str, pool: Pool, named_problem: NamedProblem
) -> None:
    problem = named_problem("silu")
    verdict = _judge(pool, problem, BUILD_DEATHS[how]).verdict
    assert verdict.status is Status.NO_BUILD
    assert verdict.reason
    assert "\n" not in verdict.reason
    assert _judge(pool, problem, problem.null_source).verdict.status is Status.CORRECT


@pytest.mark.parametrize(
    "body",
    [
        "return x[:1]",
        "return x.double()",
        "return (x, x)",
        "return None",
        "return x.tolist()",
        "return x.to(torch.complex64)",
        "return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)",
    ],
)
def test_an_output_of_another_shape_or_type_is_incorrect(
    body: str, each_pool: Pool, named_problem: NamedProblem
) -> None:
    verdict = _judge(each_pool, _silu(each_pool, named_problem), _source(body)).verdict
    assert verdict.status is Status.INCORRECT, verdict.reason


@pytest.mark.parametrize(
    "output",
    [
        "y.to('meta')",
        "y.to_mkldnn()",
        "y.to_sparse()",
        "torch.nested.nested_tensor(list(y))",
        "torch.empty(y.shape, device='meta')",
        "torch.sparse_csr_tensor((0, 0), (), (), y.shape)",
    ],
)
def test_an_output_that_cannot_be_copied_fails_its_candidate_alone(
    output: str, each_pool: Pool, named_problem: NamedProblem
) -> None:
    problem = _silu(each_pool, named_problem)
    verdict = _judge(each_pool, problem, _source(f"y = {CALL}\nreturn {output}")).verdict
    assert verdict.status in {Status.CRASHED, Status.INCORRECT}, verdict.reason
    assert _judge(each_pool, problem, problem.null_source).verdict.is_successful


@pytest.mark.parametrize("output", ["y.t().contiguous().t()", "y.conj()"])
def test_an_output_in_another_memory_layout_is_correct(
    output: str, each_pool: Pool, named_problem: NamedProblem
) -> None:
    problem = _silu(each_pool, named_problem)
    verdict = _judge(each_pool, problem, _source(f"y = {CALL}\nreturn {output}")).verdict
    assert verdict.is_successful, verdict.reason


# --- what a worker is given ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_s_environment_holds_nothing_of_the_judge_s(
    open_pool: OpenPool, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    top = "told = open('/proc/self/environ').read() + ' '.join(os.environ.values())"
    searching = f"raise RuntimeError({SECRET!r} in told)"
    naming = "raise RuntimeError(' '.join(os.environ))"
    with open_pool() as pool:
        reasons = [
            _judge(pool, named_problem("silu"), _source(body, top=top)).verdict.reason or ""
            for body in (searching, naming)
        ]
    assert "RuntimeError: False" in reasons[0]
    names = reasons[1].removeprefix("RuntimeError: ").partition(" (line")[0].split()
    assert "PATH" in names
    assert set(names) <= INHERITED


def test_a_worker_has_no_descriptors_but_its_channel(
    pool: Pool, named_problem: NamedProblem
) -> None:
    looking = _source("raise RuntimeError(str(told))", top="told = os.listdir('/proc/self/fd')")
    reason = _judge(pool, named_problem("silu"), looking).verdict.reason
    assert reason is not None
    # three standard streams, the channel, and the one that lists
    assert len(re.findall(r"'[0-9]+'", reason)) == 5, reason


def test_a_verdict_lists_the_layers_of_the_sandbox(
    each_pool: Pool, named_problem: NamedProblem
) -> None:
    verdict = _judge(
        each_pool, _silu(each_pool, named_problem), _silu(each_pool, named_problem).null_source
    ).verdict
    assert {"fork", "empty_environment", "rlimits", "no_new_privs"} <= set(verdict.sandbox)


# --- what is left behind -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_closed_pool_leaves_no_process_no_file_and_no_descriptor(
    open_pool: OpenPool, named_problem: NamedProblem
) -> None:
    problem, name = named_problem("silu"), f"left{os.getpid()}"
    messy = _source(
        f"return {CALL}",
        top=f"""
            import ctypes
            assert ctypes.CDLL(None).prctl({PR_SET_NAME}, b"{name}", 0, 0, 0) == 0
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(600)
            os.makedirs("/".join(["deep"] * 200))
            open("some", "w").write("thing")
        """,
    )
    gc.collect()
    descriptors, before = _num_descriptors(), _children()
    with open_pool() as pool:
        verdict = _judge(pool, problem, messy).verdict
        assert verdict.status is Status.CORRECT, verdict.reason
        if "own_pids" not in verdict.sandbox:
            pytest.skip("this machine grants no layer own_pids")
        _judge(pool, problem, _source(DEATHS["forks_and_leaves"][0]))
        # no such process is left even while the pool is open
        assert not _named(name)
        assert _children() - before
        assert pool._zygote is not None
        folder = Path(pool._zygote._source.folder)
    assert not _children() - before
    assert not folder.exists()
    assert [path.suffix for path in folder.parent.iterdir()] == [".lock"]
    del pool
    gc.collect()
    assert _num_descriptors() == descriptors


def test_a_judgement_leaves_threads_cores_and_random_numbers_unchanged(
    pool: Pool, named_problem: NamedProblem
) -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0), torch.get_rng_state().tolist()
    _judge(pool, named_problem("silu"), named_problem("silu").null_source)
    after = torch.get_num_threads(), os.sched_getaffinity(0), torch.get_rng_state().tolist()
    assert before == after


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_raises_one_line_that_names_the_remedy() -> None:
    with pytest.raises(DeviceError) as caught:
        find_device(DeviceClass.CUDA)
    assert "\n" not in str(caught.value)
    assert "set device: cpu" in str(caught.value)
    assert "device: cpu" in str(caught.value)


def test_a_second_lock_of_a_device_is_refused_and_names_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = find_device(DeviceClass.CPU)
    refused = pytest.raises(DeviceError, match=rf"in use by process {os.getpid()}\b")
    with device.locked(), refused, device.locked():
        pytest.fail("two hold one device")
    with device.locked():
        pass  # free again


def test_a_dead_process_does_not_keep_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = find_device(DeviceClass.CPU)
    child = os.fork()
    if child == 0:
        try:
            device.locked().__enter__()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with device.locked():
        pass


def test_a_source_that_is_not_python_starts_no_process(
    pool: Pool, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = named_problem("silu")
    judge = pool._prepare(problem)
    monkeypatch.setattr(judge._workers, "candidate", lambda _: pytest.fail("a process was started"))
    verdict = _judge(pool, problem, "def f(:").verdict
    assert verdict.status is Status.NO_BUILD
    assert verdict.reason == "SyntaxError: invalid syntax (candidate.py, line 1)"
    verdict = _judge(pool, problem, "# coding: raw_unicode_escape\n# \\u000aevil()").verdict
    assert verdict.status is Status.NO_BUILD
    assert "declares encoding raw_unicode_escape" in (verdict.reason or "")


def test_a_swallowed_ctrl_c_is_raised_before_the_next_candidate(
    pool: Pool, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _silu(pool, named_problem)
    with monkeypatch.context() as patched:
        patched.setattr(interrupt, "_has_come", True)
        with pytest.raises(KeyboardInterrupt):
            _judge(pool, problem, problem.null_source)
    assert _judge(pool, problem, problem.null_source).verdict.status is Status.CORRECT


# --- timing --------------------------------------------------------------------------------------


@pytest.mark.slow
@patiently
def test_leaving_out_a_redundant_matmul_is_certified(
    pool: Pool, named_problem: NamedProblem, until_measured: UntilMeasured
) -> None:
    problem = named_problem("wasteful")
    source = _source("return x @ y").replace("forward(self, x)", "forward(self, x, y)")

    def missing() -> object:
        verdict = _judge(pool, problem, source, timing=True).verdict
        assert verdict.status is Status.CORRECT, verdict.reason
        assert verdict.measurement is not None
        # twice the work cannot be more than about twice the time
        assert verdict.measurement.certified < 3, verdict.measurement
        return None if verdict.measurement.certified > 1.2 else ("not certified", verdict)

    until_measured("wasteful", missing)


def test_a_busy_moment_does_not_raise_the_harness_s_own_cost(
    pool: Pool, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed = iter([9000, 8000, 9500, 7000, 9900, 8800, 410, 9000, 400, 9000, 405, 1, 1, 1])
    real = costs.run_own

    def slowed(*arguments: Any) -> Burst:
        return replace(real(*arguments), elapsed_us=float(next(disturbed)))

    known, reference = pool._prepare(named_problem("silu"))._costs, cast(Worker, None)
    known._empty_us.clear()
    with monkeypatch.context() as patch:
        patch.setattr(costs, "run_own", slowed)
        assert known.empty_us(2, reference) == 400
    known._empty_us.clear()


@pytest.mark.slow
def test_timed_bursts_are_recorded_four_to_a_quad_and_two_to_a_pair(
    each_pool: Pool, named_problem: NamedProblem
) -> None:
    problem = _silu(each_pool, named_problem)
    judgement = _judge(each_pool, problem, problem.null_source, timing=True)
    measurement = judgement.verdict.measurement
    assert measurement is not None
    places = [(s.quad, s.position) for s in judgement.samples if s.session == 0]
    sizes = Counter(quad for quad, _ in places)
    assert places == [(q, p) for q in range(measurement.num_quads) for p in range(sizes[q])]
    assert sizes[0] == 4
    assert set(sizes.values()) <= {2, 4}
    roles = [s.role for s in judgement.samples[:4]]
    assert roles[0] is roles[3] is not roles[1] is roles[2]


def test_a_copy_of_the_reference_is_certified_one_after_a_pair_for_each_bucket(
    each_pool: Pool, named_problem: NamedProblem, quick: EvalProtocol
) -> None:
    problem = _silu(each_pool, named_problem)
    copy = problem.null_source.removesuffix(NULL_MARK)
    judgement = _judge(each_pool, problem, copy, timing=True)
    verdict = judgement.verdict
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.properties is not None
    assert verdict.properties.copies_reference is True
    assert verdict.measurement is not None
    assert (verdict.measurement.certified, verdict.measurement.num_quads) == (1.0, 7)
    assert quick.num_buckets == 7 < quick.min_quads
    assert set(Counter(sample.quad for sample in judgement.samples).values()) == {2}


@pytest.mark.slow
def test_a_null_test_is_not_a_copy_and_is_measured(
    each_pool: Pool, named_problem: NamedProblem, quick: EvalProtocol
) -> None:
    """Fewer quads than `min_quads` come only where both a gain and a loss are refuted."""
    problem = _silu(each_pool, named_problem)
    verdict = _judge(each_pool, problem, problem.null_source, timing=True).verdict
    assert verdict.properties is not None
    assert verdict.properties.copies_reference is False
    assert verdict.measurement is not None
    fewest = next(n for n in range(1, 99) if evidence(n, n) >= 1 / quick.give_up_alpha)
    assert verdict.measurement.num_quads >= min(quick.min_quads, fewest)


@pytest.mark.slow
def test_inputs_on_which_the_reference_overflows_fail_no_candidate(
    pool: Pool, named_problem: NamedProblem
) -> None:
    problem = named_problem("exponential")
    for _ in range(12):
        verdict = _judge(pool, problem, problem.null_source).verdict
        assert verdict.status is Status.CORRECT, verdict.reason


def test_a_candidate_must_be_right_on_every_input_of_the_problem_s_own(
    pool: Pool, named_problem: NamedProblem
) -> None:
    """Otherwise a candidate would gain by skipping the inputs that are hard on the reference."""
    problem = named_problem("sometimes_hopeless")
    skips = problem.null_source.replace(
        "y = self.linear(x)", "if not x.any(): return x + 7.0\n        y = self.linear(x)"
    )
    assert skips != problem.null_source
    assert _judge(pool, problem, skips, timing=True).verdict.status is Status.INCORRECT


def test_a_success_without_timing_names_the_protocol_of_checks_only(
    each_pool: Pool, named_problem: NamedProblem, quick: EvalProtocol
) -> None:
    problem = _silu(each_pool, named_problem)
    judgement = _judge(each_pool, problem, problem.null_source)
    assert judgement.verdict.protocol_id == quick.checks_only().id != quick.id
    assert judgement.verdict.is_successful
    assert (judgement.verdict.measurement, judgement.samples) == (None, ())


def test_a_failure_without_timing_names_the_full_protocol(
    pool: Pool, named_problem: NamedProblem, quick: EvalProtocol
) -> None:
    verdict = _judge(pool, named_problem("silu"), _source("return x")).verdict
    assert verdict.status is Status.INCORRECT
    assert verdict.protocol_id == quick.id


def test_a_look_at_the_source_only_labels(pool: Pool, named_problem: NamedProblem) -> None:
    body = f"try:\n    return {CALL}\nexcept ValueError:\n    return None"
    verdict = _judge(pool, named_problem("silu"), _source(body)).verdict
    assert verdict.is_successful
    assert "fallback" in {flag.kind for flag in verdict.flags}
    assert {flag.source for flag in verdict.flags} == {FlagSource.SCREEN}


@pytest.mark.slow
def test_candidates_that_are_not_timed_leave_no_processes_behind(
    pool: Pool, named_problem: NamedProblem
) -> None:
    zygote = pool._zygote
    assert zygote is not None
    problem = named_problem("silu")
    for number in range(12):
        _judge(pool, problem, f"{problem.null_source}# {number}")
    assert len(zygote._leaving) <= MAX_LEAVING + 1


SLEEPS = "time.sleep(0.1)"


@pytest.mark.parametrize(
    ("when", "status"),
    [("self.calls < 6", Status.CORRECT), ("True", Status.TIMED_OUT)],
    ids=["at first", "always"],
)
def test_a_candidate_is_too_slow_only_if_it_is_slow_in_every_burst(
    when: str,
    status: Status,
    pool: Pool,
    named_problem: NamedProblem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem_judge = pool._prepare(named_problem("silu"))
    monkeypatch.setattr(
        problem_judge._costs.known, "reference_us", 90.0
    )  # a slow call takes a thousand times as long
    source = _source(f"if {when}:\n    {SLEEPS}\nreturn {CALL}")
    verdict = _judge(pool, named_problem("silu"), source, timing=False).verdict
    assert verdict.status is status, verdict.reason
    assert status is Status.CORRECT or "times slower than the reference" in verdict.reason


ONCE = (
    "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
    "    def __init__(self, size):\n        super().__init__()\n"
    "        self.linear = nn.Linear(size, size)\n\n"
    "    def forward(self, x):\n        return self.linear(x)\n"
)


@pytest.mark.slow
@patiently
def test_a_large_gain_is_correct_and_confirmed_in_a_fresh_process(
    judge: Judge, until_measured: UntilMeasured
) -> None:
    def missing() -> object:  # weights change at random moments of the first measurement
        verdict = judge("wasteful_linear", ONCE).verdict
        assert verdict.status is Status.CORRECT, verdict.reason
        assert verdict.measurement is not None
        return None if verdict.measurement.is_confirmed else ("not confirmed", verdict)

    until_measured("wasteful_linear", missing)


@pytest.mark.slow
@patiently
def test_a_claim_for_another_device_is_measured_once_here_and_once_there(
    pool: Pool, named_problem: NamedProblem, until_measured: UntilMeasured
) -> None:
    problem = named_problem("wasteful_linear")
    candidate = Candidate(problem_id=problem.id, source=ONCE)
    claims: list[Verdict] = []

    def missing() -> object:
        first = pool.judge(problem, candidate, elsewhere=True)
        claim = first.verdict.measurement
        assert claim is not None, first.verdict.reason
        assert claim.is_confirmed is None
        assert {sample.session for sample in first.samples} == {0}
        assert first.is_to_confirm == (claim.certified > 1.0)
        claims.append(first.verdict)
        return None if first.is_to_confirm else ("no claim", first.verdict)

    until_measured("wasteful_linear", missing)
    second = pool.confirm(problem, candidate, claims[-1])
    assert second.verdict.status is Status.CORRECT, second.verdict.reason
    assert second.verdict.measurement is not None
    # a second session only where the reference's process was slow, as on a busy machine
    assert {sample.session for sample in second.samples} in ({0}, {0, 1})


@pytest.mark.slow
def test_a_candidate_that_computes_something_else_fails_the_confirmation(
    pool: Pool, named_problem: NamedProblem
) -> None:
    problem = named_problem("silu")
    honest = Candidate(problem_id=problem.id, source=problem.null_source)
    claim = pool.judge(problem, honest).verdict
    assert claim.measurement is not None, claim.reason
    wrong = Candidate(problem_id=problem.id, source=_source("return torch.zeros_like(x)"))
    assert pool.confirm(problem, wrong, claim).verdict.status is Status.INCORRECT


@pytest.mark.parametrize("call", ["0.0 * x + 3.0", "torch.sigmoid(x) * 1e-6 + 3.0"])
def test_no_gain_counts_where_work_is_not_needed(
    call: str, pool: Pool, named_problem: NamedProblem
) -> None:
    problem = named_problem("large_silu")
    many = f"sum(torch.sin(x + i) for i in range(9)) * 0.0 + {call}"
    weak = problem.model_copy(update={"source": problem.source.replace(CALL, many)})
    source = _source("return torch.full_like(x, 3.0)")
    verdict = pool.judge(weak, Candidate(problem_id=weak.id, source=source)).verdict
    measured = verdict.measurement
    assert (verdict.status, verdict.reason) == (Status.CORRECT, None)
    assert measured is not None
    assert measured.speedup > 1.5
    assert (measured.certified, measured.doubt) == (1.0, Doubt.REFERENCE)


def test_a_wrong_answer_to_a_weak_reference_is_wrong(
    pool: Pool, named_problem: NamedProblem
) -> None:
    problem = named_problem("silu")
    constant = problem.source.replace(CALL, "0.0 * x + 3.0")
    weak = problem.model_copy(update={"source": constant})
    source = _source("return torch.full_like(x, 3.001)")
    verdict = pool.judge(weak, Candidate(problem_id=weak.id, source=source)).verdict
    assert verdict.status is Status.INCORRECT
