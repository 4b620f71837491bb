"""Tests of budgets, authors, files beside a module, remedies and the formatted version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, ConsentError, StoreError, SuiteError
from cudal1.harness.device.device import find_device
from cudal1.origin import Origin, origin_of, with_origin
from cudal1.problem import DeviceClass
from cudal1.program.backends import Backend
from cudal1.services.optimizing.authors import TEACHER_NAMES, authors, default_names, refuse_backend
from cudal1.services.optimizing.budget import Budget, Meter, budget_of
from cudal1.services.optimizing.keeping import ProvenFind, finished, formatted, keep
from cudal1.services.optimizing.places import Places, file_of_class
from cudal1.services.optimizing.remedies import with_remedy
from cudal1.services.optimizing.state import Find, State
from cudal1.settings import protocols
from cudal1.suite.loader import problem_of
from cudal1.verdict import Status
from tests.services.kept_verdicts import verdict_of
from tests.services.test_reviewing import VERDICT


@pytest.mark.parametrize("option", ["minutes", "verdicts", "usd"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_budget_of_nothing_is_refused_with_its_option(option: str, value: float) -> None:
    given = {"minutes": None, "verdicts": None, "usd": None} | {option: value}
    with pytest.raises(ConfigError, match=rf"--{option} .*: is no budget"):
        budget_of(**given)  # pyright: ignore[reportArgumentType]


def test_without_options_the_budget_is_five_minutes() -> None:
    assert budget_of(None, None, None) == Budget(minutes=5.0)


def test_the_first_limit_that_is_reached_counts() -> None:
    now, spent = 0.0, 1.0
    meter = Meter(Budget(minutes=1, verdicts=2, usd=3), lambda: spent, now=lambda: now)
    assert meter.used_up is None
    spent = 4.0
    assert meter.used_up == "the 3 USD are spent"
    meter.num_verdicts = 2
    assert meter.used_up == "the 2 verdicts are made"
    now = 60.0
    assert meter.used_up == "the 1 minutes are over"


def test_default_authors_need_no_key_and_no_network() -> None:
    found = authors(default_names(), None, usd=None)
    assert [each.name for each in found] == [*TEACHER_NAMES, "embedded", "tuner"]


def test_an_unknown_author_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"--with gpt4: no such provider; name teachers, emb"):
        authors(["gpt4"], None, usd=None)


def test_an_author_that_charges_needs_an_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.delenv("CUDAL1_MAY_SPEND_USD", raising=False)
    with pytest.raises(ConsentError, match=r"--with gpt-4o: it charges; .* --usd 5"):
        authors(["gpt-4o"], None, usd=None)
    assert [each.name for each in authors(["gpt-4o"], None, usd=1.0)] == ["gpt-4o"]


def test_an_amount_without_an_author_that_charges_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--usd 2: none of teachers charges"):
        authors(["teachers"], None, usd=2.0)


def test_the_authors_without_a_key_are_not_asked_for_kernels() -> None:
    with pytest.raises(ConfigError, match=r"--backend triton: the authors without a key write Py"):
        default_names(Backend.TRITON)


@pytest.mark.parametrize("backend", Backend)
def test_kernels_are_not_asked_for_where_there_is_no_gpu(backend: Backend) -> None:
    with pytest.raises(ConfigError, match=rf"--backend {backend}: its kernels need a GPU"):
        refuse_backend(backend, DeviceClass.CPU)


def test_a_language_that_is_not_installed_is_refused_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cudal1.services.optimizing.authors.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"there is no cutlass; pip install nvidia-cutlass-dsl"):
        refuse_backend(Backend.CUTLASS_DSL, DeviceClass.CUDA)


def test_files_stand_beside_the_module(tmp_path: Path) -> None:
    places = Places(tmp_path / "model.py")
    names = [places.version.name, places.record.name, places.report.name, places.ledger.name]
    assert names == ["model.faster.py", "model.faster.json", "model.report.html", "model.optimize"]
    assert Places(tmp_path / "folder").version.name == "folder.faster.py"


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    places = Places(tmp_path / "model.py")
    assert places.kept() is None
    places.version.write_text("mine")
    with pytest.raises(StoreError, match=r"model\.faster\.py: was not kept by cudal1 optimize"):
        places.kept()


@pytest.fixture
def typed(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that writes a class's problem file beside its inputs."""
    (tmp_path / "own_layers.py").write_text("class GatedNorm: ...\n")
    (tmp_path / "inputs.py").write_text("def get_inputs():\n    return []\n")

    def typed() -> Path:
        return file_of_class(
            Path("own_layers:GatedNorm"),
            inputs=tmp_path / "inputs.py",
            folder=tmp_path,
            device_class=DeviceClass.CPU,
        )

    return typed


def test_the_file_of_a_class_names_it_and_is_written_again_where_it_changed(
    typed: Callable[[], Path], tmp_path: Path
) -> None:
    path = typed()
    assert path == tmp_path / "gated_norm.py"
    before = origin_of(path.read_text())
    assert before is not None
    assert before.replaces == "own_layers:GatedNorm"
    (tmp_path / "own_layers.py").write_text("class GatedNorm:\n    eps = 1\n")
    after = origin_of(typed().read_text())
    assert after is not None
    assert after.source_id != before.source_id


def test_a_file_of_ones_own_is_not_overwritten_by_that_of_a_class(
    typed: Callable[[], Path], tmp_path: Path
) -> None:
    (tmp_path / "gated_norm.py").write_text("mine = 1\n")
    with pytest.raises(SuiteError, match=r"was not written from own_layers:GatedNorm; move it"):
        typed()


@pytest.mark.parametrize("origin", [Origin(replaces="layers:Norm", source_id="0" * 16), None])
def test_a_record_names_the_class_that_its_problem_was_written_from(
    tmp_path: Path, origin: Origin | None
) -> None:
    source = "class Model: ...\n" if origin is None else with_origin("class Model: ...", origin)
    problem = problem_of(source, tmp_path / "model.py", device_class=DeviceClass.CPU)
    candidate = Candidate(problem_id=problem.id, source="class ModelNew: ...\n")
    keep(
        Places(tmp_path / "model.py"),
        problem,
        ProvenFind(Find(candidate, verdict_of(candidate), "fuser"), (1.5, 1.6)),
        protocols.load("cpu"),
        device=find_device(DeviceClass.CPU),
        inputs=("float32[8]",),
        invariants=(),
        again="cudal1 judge model.py model.faster.py",
    )
    kept = records.read(tmp_path / "model.faster.json")
    assert kept.proofs[0].sessions == (1.5, 1.6)
    assert kept.replaces == (None if origin is None else origin.replaces)
    assert kept.replaces_source_id == (None if origin is None else origin.source_id)
    with pytest.raises(StoreError, match=r"model\.faster\.py: has no kernel in triton; move it"):
        Places(tmp_path / "model.py").refuse_another_language(Backend.TRITON)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("raises ModuleNotFoundError: No module named 'x'", "install what it imports"),
        ("raises RuntimeError: Found no NVIDIA driver on your system", "needs a GPU"),
        ("gives different outputs for equal inputs and weights", "--mode eval"),
    ],
)
def test_a_reason_has_its_remedy_on_the_same_line(reason: str, remedy: str) -> None:
    said = with_remedy(reason)
    assert said.startswith(reason)
    assert remedy in said
    assert "\n" not in said


def test_an_unknown_reason_stays_as_it_is() -> None:
    assert with_remedy("raises KeyError: 'a'") == "raises KeyError: 'a'"


def test_a_version_is_formatted_and_names_its_author() -> None:
    find = Find(Candidate(problem_id="p", source="x=[1,\n 2]\n"), VERDICT, "fuser")
    assert finished(find).source == ("# Written by fuser, kept by cudal1 optimize.\nx = [1, 2]\n")


def test_a_source_that_cannot_be_formatted_stays_as_it_is() -> None:
    assert formatted("def f(:") == "def f(:"


def test_only_a_certified_gain_becomes_the_best() -> None:
    state = State()
    wrong = VERDICT.model_copy(
        update={"status": Status.INCORRECT, "reason": "it is", "measurement": None}
    )
    assert not state.judged(Find(Candidate(problem_id="p", source="a"), wrong, "one"))
    assert state.gains == []
    assert state.judged(Find(Candidate(problem_id="p", source="b"), VERDICT, "one"))
    assert not state.judged(Find(Candidate(problem_id="p", source="c"), VERDICT, "one"))
    assert [find.candidate.source for find in state.gains] == ["b", "c"]
