from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from cudal1.problem import DeviceClass, Problem, Split
from cudal1.suite.admission import Probe, admit, admit_all, probe_all
from cudal1.suite.loader import load_suite

_spec = importlib.util.spec_from_file_location(
    "bad_problems", Path(__file__).with_name("bad_problems.py")
)
assert _spec is not None
assert _spec.loader is not None
bad_problems = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bad_problems)
BAD, source = bad_problems.BAD, bad_problems.source

LIMITS = {"max_reference_ms": 100.0, "time_limit_s": 5.0}
MANY_CALLS_S = 30.0


def problem_of(text: str, device_class: DeviceClass = DeviceClass.CPU) -> Problem:
    return Problem(
        suite="toy", level=1, number=1, name="toy", split=Split.TRAIN, device_class=device_class,
        revision="r", source=text,
    )  # fmt: skip


@pytest.fixture(scope="module")
def reasons() -> dict[str, str | None]:
    """The reason of each bad problem; all of them pass through one probing process."""
    problems = [problem_of(text) for text, _ in BAD.values()]
    tried = admit_all(problems, **LIMITS)
    return {
        name: admission.reason for name, (_, admission) in zip(BAD, tried, strict=True)
    }


@pytest.mark.parametrize("name", BAD)
def test_a_bad_problem_is_rejected_with_its_reason(
    name: str, reasons: dict[str, str | None]
) -> None:
    assert BAD[name][1] in (reasons[name] or "admitted")


def test_reasons_are_one_line(reasons: dict[str, str | None]) -> None:
    assert [name for name, reason in reasons.items() if reason and "\n" in reason] == []


def test_a_good_problem_is_admitted() -> None:
    problem = problem_of(source())

    admission = admit(problem, **LIMITS)

    assert (admission.admitted, admission.problem_id) == (True, problem.id)


@pytest.mark.parametrize("name", ["crashes", "leaves", "raises", "hangs"])
def test_the_problem_after_a_bad_one_is_admitted(name: str) -> None:
    pair = [problem_of(BAD[name][0]), problem_of(source())]

    admitted = [admission.admitted for _, admission in admit_all(pair, **LIMITS)]

    assert admitted == [False, True]


def test_a_problem_that_patches_torch_harms_no_other() -> None:
    patching = source("torch.relu = torch.zeros_like\nreturn torch.sigmoid(x)")
    pair = [problem_of(patching), problem_of(source())]

    assert [a.reason for _, a in admit_all(pair, **LIMITS)] == [None, None]


def test_a_problem_sees_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    looking = source(top="import os\nif 'OPENAI_API_KEY' in os.environ: raise KeyError")

    assert admit(problem_of(looking), **LIMITS).reason is None


def test_what_a_problem_prints_is_not_taken_for_an_answer() -> None:
    printing = source("print('{\"reason\": \"printed\"}', flush=True)\nreturn torch.relu(x)")

    assert admit(problem_of(printing), **LIMITS).reason is None


def test_equal_elements_that_follow_the_input_are_no_constant() -> None:
    following = source("return x.mean().expand(8, 8)")

    assert admit(problem_of(following), **LIMITS).reason is None


def test_a_fixed_mask_among_the_inputs_is_allowed() -> None:
    masked = source(
        "return x.masked_fill(y == 0, 0.0)", arguments="x, y",
        inputs="[torch.randn(8, 8), torch.tril(torch.ones(8, 8))]",
    )  # fmt: skip
    weighted = source(
        "return x * y", arguments="x, y", inputs="[torch.randn(8, 8), torch.ones(8, 8)]"
    )

    reasons = [a.reason for _, a in admit_all([problem_of(masked), problem_of(weighted)], **LIMITS)]

    assert reasons == [None, None]


def test_a_fixed_input_that_nothing_depends_on_is_found() -> None:
    ignoring = source(arguments="x, y", inputs="[torch.randn(8, 8), torch.ones(8, 8)]")

    assert "input 1" in (admit(problem_of(ignoring), **LIMITS).reason or "")


def test_a_probe_reports_time_bytes_and_shapes() -> None:
    ((_, probe),) = probe_all([problem_of(source("return x, x.sum(dim=0)"))], **LIMITS)

    assert probe.reference_us is not None
    assert probe.reference_us > 0
    assert (probe.input_bytes, probe.output_bytes) == (256, 256 + 32)
    assert probe.output_shapes == ((8, 8), (8,))


def test_a_probe_tells_how_far_inputs_move_outputs() -> None:
    sure = source()
    faint = source("return x + 0.05 * y", **bad_problems.TWO)

    sure_probe, faint_probe = (
        probe for _, probe in probe_all([problem_of(sure), problem_of(faint)], **LIMITS)
    )

    assert sure_probe.input_effect is not None
    assert faint_probe.input_effect is not None
    assert 0.01 < faint_probe.input_effect < 0.2 < sure_probe.input_effect


def test_a_probe_without_figures_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason=None"):
        Probe(problem_id="p")


def test_a_slow_cpu_is_no_reason_against_a_cuda_problem() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: the limit holds")

    problem = problem_of(BAD["too slow"][0], DeviceClass.CUDA)

    assert admit(problem, **LIMITS).reason is None


def test_many_good_problems_need_one_process_and_seconds() -> None:
    problems = [problem_of(source(f"return torch.relu(x) + {n}")) for n in range(20)]
    started = time.monotonic()

    admitted = [admission.admitted for _, admission in admit_all(problems, **LIMITS)]

    assert all(admitted)
    # a process with torch for each would need over a second each
    assert time.monotonic() - started < MANY_CALLS_S


def test_giving_up_half_way_leaves_no_process() -> None:
    tried = probe_all([problem_of(source()), problem_of(source("return x + 1"))], **LIMITS)
    next(tried)
    process = tried.gi_frame.f_locals["prober"]._process  # type: ignore[attr-defined]

    tried.close()  # type: ignore[attr-defined]

    assert process.returncode is not None


@pytest.mark.parametrize(
    "problem", [pytest.param(p, id=p.key) for p in load_suite(DeviceClass.CPU)]
)
def test_each_shipped_problem_is_admitted(
    problem: Problem, shipped_probes: dict[str, Probe]
) -> None:
    assert shipped_probes[problem.id].reason is None


@pytest.fixture(scope="module")
def shipped_probes() -> dict[str, Probe]:
    tried = probe_all(load_suite(DeviceClass.CPU), max_reference_ms=100.0)
    return {problem.id: probe for problem, probe in tried}


def test_shipped_problems_are_small_on_a_cpu(shipped_probes: dict[str, Probe]) -> None:
    large = {
        problem_id: probe
        for problem_id, probe in shipped_probes.items()
        if (probe.input_bytes or 0) + (probe.output_bytes or 0) > 4 << 20
    }

    assert large == {}


def test_shipped_problems_depend_strongly_on_every_input(
    shipped_probes: dict[str, Probe],
) -> None:
    assert min(probe.input_effect or 0.0 for probe in shipped_probes.values()) > 0.1
