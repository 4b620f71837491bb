"""The doctor reports what a worker says of itself, and whether that is enough."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cudal1.cli import app
from cudal1.harness import doctor, find_device
from cudal1.harness.layers import missing
from cudal1.problem import DeviceClass


def test_the_doctor_finds_what_a_worker_says(layers: tuple[str, ...]) -> None:
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
