"""Admission tries problems in processes of their own and refuses bad ones with a reason."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cudal1.harness.admission import admission
from cudal1.harness.admission.admission import UNREADABLE, Check, Probe, admit, admit_all, probe_all
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.admission.prober import Prober
from cudal1.harness.device.device import find_device
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.protocol import Contract, Mode
from cudal1.settings import protocols
from cudal1.suite.loader import load_suite

pytestmark = pytest.mark.slow

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
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        device_class=device_class,
        revision="r",
        source=text,
    )


@cache
def shared() -> Prober:
    """Return a prober for the problems of many tests: its process takes seconds to start."""
    return Prober()


@pytest.fixture(scope="module", autouse=True)
def _shared_ends() -> Iterator[None]:
    with closing(shared()):
        yield


def reasons_of(sources: dict[str, str], *, prober: Prober | None = None) -> dict[str, str | None]:
    problems = [problem_of(text) for text in sources.values()]
    tried = probe_all(problems, **LIMITS, prober=prober or shared())
    return {name: probe.admission.reason for name, (_, probe) in zip(sources, tried, strict=True)}


@pytest.fixture(scope="module")
def reasons() -> dict[str, str | None]:
    """The reason of each bad problem; one probing process tries all of them."""
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
        with closing(Prober()) as own:
            return reasons_of(GOOD, prober=own)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_problem_is_admitted(name: str, good_reasons: dict[str, str | None]) -> None:
    assert good_reasons[name] is None


def test_one_problem_alone_is_admitted_under_its_own_id() -> None:
    problem = problem_of(source())

    found = admit(problem, **LIMITS).admission
    assert found == Admission(problem_id=problem.id, admitted=True)


def test_a_fixed_input_without_effect_is_no_reason() -> None:
    """A candidate may ignore an input that never changes, whatever the reference does with it."""
    ignoring = source(arguments="x, y", inputs="[torch.randn(8, 8), torch.ones(8, 8)]")

    assert admit(problem_of(ignoring), **LIMITS).admission.admitted


@pytest.fixture(scope="module")
def probes() -> list[Probe]:
    sources = [source("return x, x.sum(dim=0)"), source("return x + 0.05 * y", **bad_problems.TWO)]
    tried = probe_all([problem_of(text) for text in sources], **LIMITS, prober=shared())
    return [probe for _, probe in tried]


def test_a_probe_reports_time_bytes_and_shapes(probes: list[Probe]) -> None:
    probe = probes[0]

    assert probe.reference_us is not None
    assert probe.reference_us > 0
    assert (probe.input_bytes, probe.output_bytes) == (256, 256 + 32)
    assert probe.output_shapes == ((8, 8), (8,))


def test_a_probe_tells_how_far_the_weakest_input_moves_outputs(probes: list[Probe]) -> None:
    assert probes[1].input_effect == pytest.approx(0.05 * 2**0.5, rel=0.5)


def test_a_probe_without_figures_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason=None"):
        Probe(problem_id="p")


def test_a_slow_cpu_is_no_reason_to_refuse_a_cuda_problem() -> None:
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

    with closing(Prober()) as own:
        assert reasons_of({"odd": leaves}, prober=own) == {"odd": None}

    assert list(tmp_path.iterdir()) == []


def test_giving_up_half_way_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = Prober._start, list[Any]()

    def noted(self: Prober) -> Any:
        started.append(start(self))
        return started[-1]

    monkeypatch.setattr(Prober, "_start", noted)
    tried = probe_all([problem_of(source()), problem_of(source("return x + 1"))], **LIMITS)
    next(tried)
    (process,) = started
    assert process.returncode is None

    tried.close()

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
    tried = probe_all(load_suite(DeviceClass.CPU), max_reference_ms=100.0, prober=shared())
    return {problem.id: probe for problem, probe in tried}


def test_shipped_problems_are_small_on_a_cpu(shipped_probes: dict[str, Probe]) -> None:
    large = {
        problem_id: probe
        for problem_id, probe in shipped_probes.items()
        if (probe.input_bytes or 0) + (probe.output_bytes or 0) > 4 << 20
    }

    assert large == {}


def test_shipped_problems_depend_strongly_on_every_input(shipped_probes: dict[str, Probe]) -> None:
    assert min(probe.input_effect or 0.0 for probe in shipped_probes.values()) > 0.1


# --- what earlier runs have found ----------------------------------------------------------------

QUICK = protocols.load("cpu").model_copy(update={"correctness_stages": (3,)})
CHECK = Check(QUICK, find_device(DeviceClass.CPU))
LINEAR = source("return self.linear(x)").replace("self.calls = 0", "self.linear = nn.Linear(8, 8)")


@pytest.fixture
def known(tmp_path: Path) -> KnownReferences:
    return KnownReferences(tmp_path / "references")


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks(*_: object) -> None:
        raise AssertionError("a process is asked")

    monkeypatch.setattr(admission.Prober, "ask", asks)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that processes are asked, in their order."""
    ask, requests = admission.Prober.ask, list[dict[str, Any]]()

    def noted(self: Any, request: dict[str, Any], count: int) -> list[dict[str, Any]]:
        requests.append(request)
        return ask(self, request, count)

    monkeypatch.setattr(admission.Prober, "ask", noted)
    return requests


def tried(
    known: KnownReferences, *texts: str, check: Check = CHECK, **limits: float
) -> list[Probe]:
    problems = [problem_of(text) for text in texts]
    found = probe_all(problems, check=check, known=known, **{**LIMITS, **limits}, prober=shared())
    return [probe for _, probe in found]


def test_a_known_reference_is_found_without_a_process(
    known: KnownReferences, request: pytest.FixtureRequest
) -> None:
    before = tried(known, LINEAR, source())
    assert [probe.reason for probe in before] == [None, None]
    assert all(probe.kill_table is not None for probe in before)
    request.getfixturevalue("no_process")
    assert tried(known, LINEAR, source()) == before
    assert tried(known, source()) == before[1:]


def test_a_reference_that_changed_by_a_byte_is_tried(
    known: KnownReferences, asked: list[dict[str, Any]]
) -> None:
    tried(known, source())
    tried(known, source() + "\n", source())
    assert len(asked) == 2


def test_a_refusal_that_the_source_alone_decides_is_known(
    known: KnownReferences, request: pytest.FixtureRequest
) -> None:
    names = ["constant output", "ignores one input", "random output", "complex output"]
    texts = [BAD[name][0] for name in names]
    before = tried(known, *texts)
    assert all(
        BAD[name][1] in (probe.admission.reason or "")
        for name, probe in zip(names, before, strict=True)
    )
    request.getfixturevalue("no_process")
    assert tried(known, *texts) == before


@pytest.mark.parametrize(
    ("text", "limits", "reason"),
    [
        (source(), {"max_reference_ms": 1e-6}, "too slow"),
        (HANGING["hangs"], {"time_limit_s": 1.0}, "does not end within 1 s"),
        (source(top="import nosuchpackage"), {}, "raises ModuleNotFoundError"),
        (BAD["raises"][0], {}, "raises ValueError"),
        (BAD["crashes"][0], {}, "crashes (SIGSEGV)"),
        (BAD["fills memory"][0], {}, "raises RuntimeError"),
        (source("x.data_ptr() % 2 or missing\nreturn x"), {}, "raises NameError"),
        (f"{WRITES_AN_ANSWER.replace('{words}', '[]')}{source()}", {}, UNREADABLE),
    ],
    ids=["slow", "hangs", "lacks a package", "raises", "crashes", "memory", "a name", "unreadable"],
)
def test_a_refusal_that_the_moment_may_have_decided_is_tried_again(
    known: KnownReferences, text: str, limits: dict[str, float], reason: str
) -> None:
    (probe,) = tried(known, text, **limits)
    assert reason in (probe.reason or "")
    assert known.size() == (0, 0)


def test_findings_about_a_slow_reference_hold_for_limits_that_are_long_enough(
    known: KnownReferences, asked: list[dict[str, Any]]
) -> None:
    (probe,) = tried(known, LINEAR)
    assert probe.reference_us is not None
    tried(known, LINEAR, max_reference_ms=probe.reference_us / 1000)
    assert len(asked) == 1
    tried(known, LINEAR, max_reference_ms=probe.reference_us / 2000)
    assert len(asked) == 2


def test_traits_of_a_reference_serve_under_another_contract(
    known: KnownReferences, asked: list[dict[str, Any]]
) -> None:
    tried(known, LINEAR)
    other = Check(QUICK.model_copy(update={"contract": Contract.DROP_IN}), CHECK.device)
    (probe,) = tried(known, LINEAR, check=other)
    first, second = asked
    assert first["traits"] is None
    assert second["traits"]["can_change_weights"]
    assert probe.kill_table is not None


def test_traits_from_too_little_memory_are_not_kept(known: KnownReferences) -> None:
    short = (
        "import torch.autograd\n"
        "def grad(*_, **__): raise torch.OutOfMemoryError('CUDA out of memory. Tried')\n"
        "torch.autograd.grad = grad\n"
    )
    (probe,) = tried(known, source(top=short))
    assert probe.reason is None
    assert known.size().num_records == 1


def test_no_finding_is_kept_without_a_check(known: KnownReferences) -> None:
    list(probe_all([problem_of(source())], known=known, **LIMITS, prober=shared()))
    assert known.size() == (0, 0)


def test_a_problem_cannot_answer_for_another_one() -> None:
    one, other = problem_of(LINEAR), problem_of(source())
    (probe,) = [probe for _, probe in probe_all([one], check=CHECK, **LIMITS, prober=shared())]
    assert probe.kill_table is not None
    seen = {**probe.model_dump(exclude={"kill_table"}), "problem_id": other.id}
    table = probe.kill_table.model_dump(mode="json")
    traits: dict[str, Any] = {"traits": {}}
    forged = admission.found_in(one, [seen, {"table": {**table, "problem_id": other.id}, **traits}])
    assert forged.probe == Probe(problem_id=one.id, reason=UNREADABLE)
    assert not forged.lasts
    assert admission.found_in(one, [seen]).probe.problem_id == one.id


def test_an_endless_answer_is_refused(known: KnownReferences) -> None:
    floods = WRITES_AN_ANSWER.replace("b'{words}\\n'", "b'x' * (1 << 22)")
    (probe,) = tried(known, f"{floods}{source()}")
    assert probe.reason == UNREADABLE


DROPOUT = source("return self.drop(x)").replace("self.calls = 0", "self.drop = nn.Dropout(0.5)")


def test_a_reference_is_tried_in_the_mode_of_its_judgement(known: KnownReferences) -> None:
    in_eval = Check(QUICK.model_copy(update={"mode": Mode.EVAL}), CHECK.device)
    (as_made,) = tried(known, DROPOUT)
    assert as_made.reason == "gives different outputs for equal inputs and weights"
    (evaluated,) = tried(known, DROPOUT, check=in_eval)
    assert evaluated.reason is None
