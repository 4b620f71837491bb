"""Tests of nights: each continues to its end, then the next begins; challenges are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.errors import ConfigError
from cudal1.selection.duel import Duel, Outcome
from cudal1.tracking import registry as versions
from cudal1.tracking import runs as tracking
from tasks.night import night as module
from tasks.night import promote
from tasks.night.account import account
from tasks.night.night import End, Night, current_night, end_night, end_of, open_night


class Registry:
    """MLflow's registry, as far as a night uses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aliases = {"best": 1}
        self.tags: dict[int, dict[str, str]] = {}
        self.num_versions = 1
        for name in ("version_of", "point", "register", "note", "notes"):
            monkeypatch.setattr(versions, name, getattr(self, name))

    def version_of(self, folder: Path, name: str, *, alias: str) -> versions.Version | None:
        found = self.aliases.get(alias)
        return None if found is None else versions.Version(found, f"2026-01-{found:02}T00:00:00")

    def point(self, folder: Path, name: str, *, alias: str, version: int) -> None:
        self.aliases[alias] = version

    def register(self, folder: Path, name: str, policy: Path, *, alias: str, why: str) -> int:
        assert why.startswith("promoted over version ")
        assert policy.name == "challenger"
        self.num_versions += 1
        self.point(folder, name, alias=alias, version=self.num_versions)
        return self.num_versions

    def note(self, folder: Path, name: str, *, version: int, tags: dict[str, object]) -> None:
        self.tags[version] = {key: str(value) for key, value in tags.items()}

    def notes(self, folder: Path, name: str, *, version: int) -> dict[str, str]:
        return self.tags.get(version, {})


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    for name, path in {"_NIGHT": "night.json", "_END": "end.json"}.items():
        monkeypatch.setattr(module, name, tmp_path / path)
    monkeypatch.setattr(promote, "DUEL", tmp_path / "duel.json")
    monkeypatch.setattr(promote, "origin", lambda stage: {})
    monkeypatch.setattr(tracking, "close", lambda *where, **what: None)
    return Registry(monkeypatch)


def duel(outcome: Outcome) -> Duel:
    module.write(
        promote.DUEL,
        found := Duel(outcome=outcome, num_pairs=9, gain=0.2, lower=0.1, upper=0.3, alpha=0.025),
    )
    return found


class FakeStage:
    name = "promote"


def decide(outcome: Outcome) -> End:
    duel(outcome)
    promote.decide(FakeStage())  # type: ignore[arg-type]  # its name is all that is read
    end = end_of(current_night())
    assert end is not None
    return end


def end(night: Night) -> None:
    end_night(End(number=night.number, promoted=None, why="kept"))


def test_the_first_champion_is_the_pipelines_best_policy(registry: Registry) -> None:
    assert open_night().champion == 1
    assert registry.aliases["champion"] == 1


def test_a_missing_policy_gives_the_remedy(registry: Registry) -> None:
    registry.aliases.clear()
    with pytest.raises(ConfigError, match="make run"):
        open_night()


def test_an_unfinished_night_continues(registry: Registry) -> None:
    assert open_night() == open_night()


def test_an_unfinished_night_can_be_abandoned_and_its_challenge_counts(registry: Registry) -> None:
    first, second = open_night(), open_night(afresh=True)
    assert (second.number, second.challenge) == (first.number + 1, first.challenge + 1)


def test_challenges_of_one_champion_are_counted(registry: Registry) -> None:
    for challenge in (1, 2, 3):
        night = open_night()
        assert night.challenge == challenge
        end(night)


def test_a_new_champion_begins_a_reign(registry: Registry) -> None:
    end(open_night())
    end(open_night())
    registry.aliases["champion"] = 7
    night = open_night()
    assert (night.number, night.champion, night.challenge) == (3, 7, 1)


def test_a_champion_that_a_person_changes_ends_an_unfinished_night(registry: Registry) -> None:
    open_night()
    registry.aliases["champion"] = 7
    assert open_night().champion == 7


def test_a_damaged_file_is_named(registry: Registry) -> None:
    open_night()
    module._NIGHT.write_text("{")
    with pytest.raises(ConfigError, match=r"night\.json: damaged"):
        open_night()


def test_only_a_certified_challenger_is_promoted(registry: Registry) -> None:
    for outcome in (Outcome.NOT_CERTIFIED, Outcome.WORSE, Outcome.IDENTICAL):
        open_night()
        assert decide(outcome).promoted is None
        assert registry.aliases["champion"] == 1
    open_night()
    found = decide(Outcome.BETTER)
    assert found.promoted == registry.aliases["champion"] == 2
    assert "+0.200" in found.why
    assert registry.tags[2]["replaces"] == "1"


def test_promoting_again_changes_nothing(registry: Registry) -> None:
    """A kill between the registry and the file leads to a second promotion."""
    open_night()
    first = decide(Outcome.BETTER)
    assert decide(Outcome.BETTER) == first
    assert registry.num_versions == 2


def test_a_champion_that_a_person_set_meanwhile_stays(registry: Registry) -> None:
    open_night()
    registry.num_versions, registry.aliases["champion"] = 5, 5
    found = decide(Outcome.BETTER)
    assert (found.promoted, registry.aliases["champion"]) == (None, 5)
    assert "somebody" in found.why


def test_the_account_of_a_failed_night_gives_the_remedy(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.night.account.DATA", tmp_path)
    page = account(open_night(), None, "duel: disk full")
    assert page.startswith("# Night 1: not finished")
    assert "**duel: disk full**" in page
    assert "dvc repro flows/night/dvc.yaml" in page


def test_numbers_of_an_earlier_night_are_not_shown(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.night.account.DATA", tmp_path)
    (tmp_path / "metrics").mkdir()
    for number in (1, 2):
        (tmp_path / "metrics" / "champion.json").write_text(
            f'{{"night": {number}, "heldout_success": 0.123}}'
        )
        page = account(open_night(), None, "x")
        assert ("12.3%" in page) == (number == 1)
