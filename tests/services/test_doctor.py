"""Tests that the doctor reports a worker's description of itself, and whether it is enough."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cudal1.cli import app
from cudal1.cli.show_health import references
from cudal1.harness.admission import known_references
from cudal1.harness.admission.known_references import Circumstances
from cudal1.harness.device.device import find_device
from cudal1.harness.sandbox.layers import missing
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.services import doctor
from cudal1.settings import protocols

pytestmark = pytest.mark.slow


def test_the_doctor_reports_a_workers_description(layers: tuple[str, ...]) -> None:
    health = doctor.examine(find_device(DeviceClass.CPU))
    assert {layer.name for layer in health.layers if layer.is_active} == set(layers)
    assert health.is_fit == (not missing(layers))
    assert all((layer.remedy is None) == layer.is_active for layer in health.layers)
    assert [bool(d.found) for d in health.devices if d.device_class is DeviceClass.CPU] == [True]


def test_a_machine_below_the_minimum_is_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MINIMUM", (("moat",),))
    ended = CliRunner().invoke(app, ["doctor"])
    assert ended.exit_code == 2
    assert "not fit to judge: no moat" in ended.output
    told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert told["missing"] == ["moat"]


def test_on_a_fit_machine_every_layer_and_device_has_a_line(layers: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(app, ["doctor"])
    assert ended.exit_code == (2 if missing(layers) else 0)
    assert all(name in ended.output for name in (*layers, "landlock", "cuda", "kernel", "cupy"))


def test_the_doctor_lists_stored_results_of_references_and_deletes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = known_references.of_this_user()
    assert known is not None
    assert doctor.kept_references().num_records == 0
    problem = Problem(
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source="",
    )
    about = Circumstances.of(problem, protocols.load("cpu"), find_device(DeviceClass.CPU))
    known.keep(about, about)
    kept = doctor.kept_references()
    assert (kept.folder, kept.num_records) == (str(tmp_path / "cudal1" / "references"), 1)
    assert "--forget-references removes them" in references(kept)
    ended = CliRunner().invoke(app, ["doctor", "--forget-references"])
    assert (ended.exit_code, ended.output) == (0, "forgotten: 1 records of references\n")
    assert doctor.kept_references().num_records == 0


def test_without_a_home_nothing_is_stored_and_the_doctor_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_references, "of_this_user", lambda: None)
    assert references(doctor.kept_references()) == "nothing is kept of them: there is no HOME"
    ended = CliRunner().invoke(app, ["doctor", "--forget-references"])
    assert (ended.exit_code, ended.output) == (0, "forgotten: 0 records of references\n")
