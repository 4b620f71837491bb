"""A trial in a judge's own process finds what admission finds, and remembers it in the same way."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cudal1.errors import CrowdedError, DeviceLostError
from cudal1.harness.admission import mutants, trying
from cudal1.harness.admission.admission import Check, Found, Probe, probe_all
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.admission.prober import Prober
from cudal1.harness.admission.trying import ReferenceTrial
from cudal1.harness.device.device import find_device
from cudal1.harness.device.turns import Turns
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import Contract
from cudal1.settings import protocols
from tests.harness.admission.bad_problems import BAD, GOOD, source

CPU = find_device(DeviceClass.CPU)
PROTOCOL = protocols.load("cpu").model_copy(update={"correctness_stages": (3,)})
TRIAL = ReferenceTrial(PROTOCOL, max_reference_ms=200.0, call_limit_s=30.0)
BESIDE = "CUDAL1_TEST_BESIDE"
SLOW_BESIDE_OTHERS = source(
    f"import os, time\ntime.sleep(0.1 if os.environ.get('{BESIDE}') else 0)\nreturn torch.relu(x)"
)
FILLS_MEMORY = BAD["fills memory"][0]


def _problem(text: str) -> Problem:
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="r",
        source=text,
    )


def _found(text: str, trial: ReferenceTrial = TRIAL, turns: Turns | None = None) -> Found:
    return trial.find_out(_problem(text), CPU, turns or Turns())


def _untimed(probe: Probe) -> dict[str, Any]:
    return probe.model_dump(mode="json", exclude={"reference_us"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownReferences:
    """The cache of this user's findings about references, still empty."""
    known = KnownReferences(tmp_path / "references")
    monkeypatch.setattr(trying.known_references, "of_this_user", lambda: known)
    return known


class OthersBeside(Turns):
    """Turns of a judge; other judges slow the device down until this one has it alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.num_timed = 0
        self._patch = monkeypatch
        monkeypatch.setenv(BESIDE, "1")

    @contextmanager
    def timing(self) -> Iterator[None]:
        self.num_timed += 1
        self._patch.delenv(BESIDE)
        yield
        self._patch.setenv(BESIDE, "1")


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    with closing(Prober()) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        GOOD["plain"],
        GOOD["several outputs"],
        GOOD["float32 alone, by assertion"],
        BAD["constant output"][0],
        BAD["ignores one input"][0],
        BAD["random output"][0],
        BAD["raises"][0],
        BAD["raises what is no Exception"][0],
        BAD["not a module"][0],
        BAD["a dictionary as output"][0],
        source("return x * 3.0 if x.sum() > 1e9 else x.sign()"),
    ],
)
def test_a_trial_finds_what_admission_finds(text: str, prober: Prober) -> None:
    check = Check(PROTOCOL, CPU)
    ((_, admitted),) = probe_all(
        [_problem(text)], max_reference_ms=200.0, check=check, prober=prober
    )
    found = _found(text)
    assert _untimed(found.probe) == _untimed(admitted)
    assert found.reason == admitted.reason
    assert found.note == admitted.rejection


def test_a_trial_that_goes_well_has_a_kill_table_and_traits() -> None:
    found = _found(GOOD["plain"])
    assert (found.reason, found.note, found.lasts) == (None, None, True)
    assert found.probe.kill_table is not None
    assert found.traits is not None


def test_the_note_says_what_the_check_would_let_through() -> None:
    found = _found(
        source("return x - 1e-9 * self.linear(x)").replace(
            "self.calls = 0", "self.linear = nn.Linear(8, 8)"
        )
    )
    assert found.reason is None
    assert found.probe.kill_table is not None
    assert found.note == found.probe.kill_table.rejection
    assert found.note is not None


def test_a_reference_that_exits_ends_the_process_that_tries_it() -> None:
    with pytest.raises(SystemExit):
        _found(BAD["leaves"][0])


def test_a_kept_finding_is_known() -> None:
    problem = _problem(source())
    assert TRIAL.known(problem, CPU) is None
    found = TRIAL.find_out(problem, CPU, Turns())
    TRIAL.keep(problem, CPU, found)
    known = TRIAL.known(problem, CPU)
    assert known is not None
    assert known.probe == found.probe


def test_a_trial_asks_whether_there_is_room_before_it_takes_any() -> None:
    said = list[int]()

    def require_room(num_bytes: int) -> None:
        said.append(num_bytes)
        if len(said) == 2:
            raise CrowdedError("no room", 0.5)

    with pytest.raises(CrowdedError, match="no room"):
        TRIAL.find_out(_problem(source()), CPU, Turns(), require_room)
    inputs, both = said
    found = TRIAL.find_out(_problem(source()), CPU, Turns())
    assert (inputs, both) == (found.probe.input_bytes, found.call_bytes)


@pytest.mark.parametrize("name", ["random output", "complex output"])
def test_a_refusal_that_follows_from_the_problem_is_known(name: str) -> None:
    problem = _problem(BAD[name][0])
    TRIAL.keep(problem, CPU, TRIAL.find_out(problem, CPU, Turns()))
    known = TRIAL.known(problem, CPU)
    assert known is not None
    assert BAD[name][1] in (known.reason or "")


@pytest.mark.parametrize("name", ["constant output", "ignores one input"])
def test_a_weak_reference_can_be_judged_and_is_known_with_a_note(name: str) -> None:
    problem = _problem(BAD[name][0])
    found = TRIAL.find_out(problem, CPU, Turns())
    TRIAL.keep(problem, CPU, found)
    assert found.reason is None
    assert BAD[name][1] in (found.note or "")
    assert TRIAL.known(problem, CPU) == Found(found.probe)


@pytest.mark.parametrize("text", [BAD["raises"][0], BAD["too slow"][0], FILLS_MEMORY])
def test_a_refusal_that_the_moment_may_have_decided_is_not_kept(
    text: str, cache: KnownReferences
) -> None:
    problem = _problem(text)
    found = TRIAL.find_out(problem, CPU, Turns())
    assert found.reason is not None
    TRIAL.keep(problem, CPU, found)
    assert TRIAL.known(problem, CPU) is None
    assert cache.size() == (0, 0)


def test_a_flaw_of_the_source_is_known_without_a_trial(cache: KnownReferences) -> None:
    known = TRIAL.known(_problem(BAD["syntax error"][0]), CPU)
    assert known is not None
    assert (known.reason or "").startswith("is not valid Python")
    assert cache.size() == (0, 0)


def test_a_problem_is_tried_if_no_findings_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying.known_references, "of_this_user", lambda: None)
    problem = _problem(source())
    found = TRIAL.find_out(problem, CPU, Turns())
    TRIAL.keep(problem, CPU, found)
    assert found.reason is None
    assert TRIAL.known(problem, CPU) is None


def test_traits_of_a_reference_serve_under_another_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = _problem(source())
    found = TRIAL.find_out(problem, CPU, Turns())
    TRIAL.keep(problem, CPU, found)
    given = list[Any]()
    examine = mutants.examine

    def noted(problem: Problem, protocol: Any, device: Any, traits: Any, turns: Any) -> Any:
        given.append(traits)
        return examine(problem, protocol, device, traits, turns)

    monkeypatch.setattr(mutants, "examine", noted)
    other = ReferenceTrial(
        PROTOCOL.model_copy(update={"contract": Contract.DROP_IN}), 200.0, call_limit_s=30.0
    )
    assert other.known(problem, CPU) is None
    assert other.find_out(problem, CPU, Turns()).reason is None
    assert given == [found.traits]


@pytest.mark.slow
def test_a_reference_that_seems_slow_beside_others_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = OthersBeside(monkeypatch)
    trial = ReferenceTrial(PROTOCOL, max_reference_ms=50.0, call_limit_s=30.0)
    found = _found(SLOW_BESIDE_OTHERS, trial, turns)
    assert found.reason is None
    assert found.probe.reference_us is not None
    assert found.probe.reference_us < 50_000
    assert turns.num_timed == 1


def test_a_reference_that_is_slow_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = OthersBeside(monkeypatch)
    trial = ReferenceTrial(PROTOCOL, max_reference_ms=50.0, call_limit_s=30.0)
    found = _found(BAD["too slow"][0], trial, turns)
    assert (found.reason or "").startswith("too slow: ")
    assert (turns.num_timed, found.lasts) == (1, False)


@pytest.mark.slow
def test_a_reference_that_is_fast_beside_others_is_not_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = OthersBeside(monkeypatch)
    trial = ReferenceTrial(PROTOCOL, max_reference_ms=60_000.0, call_limit_s=30.0)
    assert _found(SLOW_BESIDE_OTHERS, trial, turns).reason is None
    assert turns.num_timed == 0


def test_a_reference_that_fills_the_memory_fails_and_the_limit_is_restored() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    found = _found(FILLS_MEMORY)
    assert "raises RuntimeError" in (found.reason or "")
    assert "allocate" in (found.reason or "")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize("look", ["examine", "try_out"])
def test_a_lost_device_decides_nothing_about_a_problem(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> NoReturn:
        raise DeviceLostError("device 0 computes no more")

    monkeypatch.setattr(mutants if look == "examine" else trying.trial, look, lost)
    with pytest.raises(DeviceLostError, match="device 0 computes no more"):
        _found(source())


@pytest.mark.parametrize(
    "name", ["nothing but rounding errors", "integers that are rounding errors"]
)
def test_rounding_errors_are_refused_by_the_findings_of_the_examination(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def double(_: object) -> NoReturn:
        pytest.fail("the trial computes in float64 what the examination computes again")

    monkeypatch.setattr(trying.trial._Reference, "double", double)
    text, said = BAD[name]
    found = _found(text)
    assert said in (found.reason or "admitted")
    assert found.lasts
