"""Where a command takes device and protocol from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from cudal1 import protocols
from cudal1.cli.settings import choose
from cudal1.errors import ConfigError
from cudal1.params import Params
from cudal1.problem import DeviceClass
from cudal1.protocol import PrecisionClass

SHIPPED = Path(__file__).parents[2] / "params.yaml"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_brings_the_protocol_of_its_name(device: Literal["cpu", "cuda"]) -> None:
    chosen = choose(None, device, None, None)
    assert (chosen.device_class, chosen.name) == (DeviceClass(device), device)
    assert chosen.protocol == protocols.load(device)


def test_a_params_file_of_ours_in_the_folder_is_used() -> None:
    Path("params.yaml").write_text(SHIPPED.read_text())
    assert choose(None, None, None, None).protocol == Params.load(SHIPPED).protocol


def test_a_broken_params_file_of_ours_is_not_passed_over() -> None:
    Path("params.yaml").write_text(SHIPPED.read_text().replace("min_quads", "min_quad"))
    with pytest.raises(ConfigError, match=r"params\.yaml: protocol\.min_quads: missing key"):
        choose(None, None, None, None)


def test_somebody_else_s_params_file_is_passed_over() -> None:
    Path("params.yaml").write_text("train: {epochs: 3}\n")
    assert choose(None, None, None, None).name in protocols.names()


def test_a_protocol_by_name_passes_over_a_params_file() -> None:
    Path("params.yaml").write_text(SHIPPED.read_text())
    assert choose(None, "cpu", "cpu", None).name == "cpu"


def test_a_params_file_and_a_protocol_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="give either"):
        choose(SHIPPED, None, "cpu", None)


def test_another_precision_is_another_protocol() -> None:
    strict = choose(None, "cpu", None, PrecisionClass.STRICT)
    half = choose(None, "cpu", None, PrecisionClass.HALF)
    assert strict.protocol.precision is PrecisionClass.STRICT
    assert half.protocol.precision is PrecisionClass.HALF
    assert strict.protocol.id != half.protocol.id
    assert half.name == "cpu (half)"
