"""The record of what decides verdicts matches the sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cudal1 import protocol
from cudal1.harness import deciding
from cudal1.harness.timing import credible, rule

REMEDY = "run `python -m cudal1.harness.deciding`"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy one of the harness's deciding folders and record it; return the copy's parent."""
    shutil.copytree(deciding.HARNESS / "timing", tmp_path / "timing")
    monkeypatch.setattr(deciding, "HARNESS", tmp_path)
    monkeypatch.setattr(deciding, "DECIDING", tmp_path / "deciding.json")
    monkeypatch.setattr("sys.argv", ["deciding"])
    deciding.main()
    return tmp_path


def test_the_record_matches_this_version_and_these_sources() -> None:
    record = json.loads(protocol.DECIDING.read_text())
    assert record["version"] == protocol.HARNESS_VERSION, REMEDY
    assert record["sources"] == deciding.digest(), REMEDY
    assert record["constants"] == json.loads(json.dumps(deciding.constants())), REMEDY


def test_the_record_holds_constants_of_every_spelling() -> None:
    found = deciding.constants()
    assert found["timing.rule.SOON"] == rule.SOON
    assert found["timing.credible.OUTPUT_US"] == credible.OUTPUT_US  # one of two on a line
    assert found["timing.credible.HOARD_BYTES"] == 1 << 16


def test_a_changed_rule_needs_another_version(copied: Path) -> None:
    source = copied / "timing" / "rule.py"
    source.write_text(source.read_text() + "\n\nNEW = 1\n")
    with pytest.raises(SystemExit, match="HARNESS_VERSION"):
        deciding.main()


def test_a_changed_comment_leaves_the_record_as_it_is(copied: Path) -> None:
    before = (copied / "deciding.json").read_text()
    source = copied / "timing" / "rule.py"
    source.write_text(f"# said otherwise\n{source.read_text()}")
    deciding.main()
    assert (copied / "deciding.json").read_text() == before


def test_a_given_reason_keeps_the_version(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = copied / "timing" / "rule.py"
    source.write_text(source.read_text() + "\n\nNEW = 1\n")
    monkeypatch.setattr("sys.argv", ["deciding", "--same-verdicts", "nobody reads NEW"])
    deciding.main()
    record = json.loads((copied / "deciding.json").read_text())
    assert (record["why"], record["constants"]["timing.rule.NEW"]) == ("nobody reads NEW", 1)


def test_constants_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudal1.settings.protocols import load

    before = load("cpu").id
    monkeypatch.setattr(protocol, "_constants", lambda: "{}")
    assert load("cpu").id != before
