from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import pytest

from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.services.admission import Probe, admit, admit_all, probe_all
from cudal1.suite.loader import load_suite

_spec = importlib.util.spec_from_file_location(
    "bad_problems", Path(__file__).with_name("bad_problems.py")
)
assert _spec is not None
assert _spec.loader is not None
bad_problems = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bad_problems)
BAD, GOOD, HANGING = bad_problems.BAD, bad_problems.GOOD, bad_problems.HANGING
source = bad_problems.source

LIMITS = {"max_reference_ms": 200.0, "time_limit_s": 30.0}


def problem_of(text: str, device_class: DeviceClass = DeviceClass.CPU) -> Problem:
    return Problem(
        suite="toy", level=1, number=1, name="toy", split=Split.TRAIN, device_class=device_class,
        revision="r", source=text,
    )  # fmt: skip


def reasons_of(sources: dict[str, str]) -> dict[str, str | None]:
    tried = admit_all([problem_of(text) for text in sources.values()], **LIMITS)
    return {name: admission.reason for name, (_, admission) in zip(sources, tried, strict=True)}


@pytest.fixture(scope="module")
def reasons() -> dict[str, str | None]:
    """The reason of each bad problem; all of them pass through one probing process."""
    return reasons_of({name: text for name, (text, _) in BAD.items()} | {"after all": source()})


@pytest.mark.parametrize("name", BAD)
def test_a_bad_problem_is_rejected_with_its_reason(
    name: str, reasons: dict[str, str | None]
) -> None:
    assert BAD[name][1] in (reasons[name] or "admitted")


def test_reasons_are_one_line(reasons: dict[str, str | None]) -> None:
    assert [name for name, reason in reasons.items() if reason and "\n" in reason] == []


def test_a_good_problem_after_all_bad_ones_is_admitted(reasons: dict[str, str | None]) -> None:
    assert reasons["after all"] is None


def test_a_problem_that_hangs_is_rejected_and_loses_no_other() -> None:
    problems = [problem_of(text) for text in HANGING.values()]

    reasons = [
        admission.reason
        for _, admission in admit_all(problems, max_reference_ms=100.0, time_limit_s=1.0)
    ]

    assert reasons == ["does not end within 1 s"] * len(HANGING)


@pytest.fixture(scope="module")
def good_reasons() -> dict[str, str | None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "secret")
        return reasons_of(GOOD)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_problem_is_admitted(name: str, good_reasons: dict[str, str | None]) -> None:
    assert good_reasons[name] is None


def test_one_problem_alone_is_admitted_under_its_own_id() -> None:
    problem = problem_of(source())

    found = admit(problem, **LIMITS).admission
    assert found == Admission(problem_id=problem.id, admitted=True)


def test_a_fixed_input_that_nothing_depends_on_is_found() -> None:
    ignoring = source(arguments="x, y", inputs="[torch.randn(8, 8), torch.ones(8, 8)]")

    assert "input 1" in (admit(problem_of(ignoring), **LIMITS).reason or "")


@pytest.fixture(scope="module")
def probes() -> list[Probe]:
    sources = [source("return x, x.sum(dim=0)"), source("return x + 0.05 * y", **bad_problems.TWO)]
    return [probe for _, probe in probe_all([problem_of(text) for text in sources], **LIMITS)]


def test_a_probe_reports_time_bytes_and_shapes(probes: list[Probe]) -> None:
    probe = probes[0]

    assert probe.reference_us is not None
    assert probe.reference_us > 0
    assert (probe.input_bytes, probe.output_bytes) == (256, 256 + 32)
    assert probe.output_shapes == ((8, 8), (8,))


def test_a_probe_tells_how_far_the_least_telling_input_moves_outputs(probes: list[Probe]) -> None:
    assert probes[1].input_effect == pytest.approx(0.05 * 2**0.5, rel=0.5)


def test_a_probe_without_figures_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason=None"):
        Probe(problem_id="p")


def test_a_slow_cpu_is_no_reason_against_a_cuda_problem() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: the limit holds")

    problem = problem_of(BAD["too slow"][0], DeviceClass.CUDA)

    assert admit(problem, **LIMITS).reason is None


ENDS_ITS_PARENT = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)"
WRITES_AN_ANSWER = (
    "import os\n"
    "for number in range(3, 64):\n"
    "    try: os.write(number, b'{words}\\n')\n"
    "    except OSError: pass\n"
)


def test_a_problem_that_ends_its_parent_costs_no_other() -> None:
    parents = {name: f"{ENDS_ITS_PARENT}\n{source()}# {name}\n" for name in "abc"}

    reasons = reasons_of(parents | {"good": source()})

    assert reasons == dict.fromkeys(parents, "crashes (SIGKILL)") | {"good": None}


@pytest.mark.parametrize("words", ['{"reason": null}', '{"device": 3}', "[]", "3", "{", "x" * 99])
def test_a_problem_that_writes_an_answer_itself_is_refused_for_it(words: str) -> None:
    written = f"{WRITES_AN_ANSWER.replace('{words}', words)}{source()}"

    reasons = reasons_of({"odd": written, "good": source()})

    assert reasons == {"odd": "writes to where its trial is answered", "good": None}


def test_trials_leave_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    leaves = f"import tempfile; tempfile.mkdtemp()\n{source()}"

    assert reasons_of({"odd": leaves}) == {"odd": None}

    assert list(tmp_path.iterdir()) == []


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
