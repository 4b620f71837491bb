"""Tests of a command's choice of device and protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from cudal1.cli.options.settings import choose, named_protocol
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass
from cudal1.protocol import PrecisionClass
from cudal1.settings import protocols
from cudal1.settings.params import Params

SHIPPED = Path(__file__).parents[3] / "params.yaml"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_selects_the_protocol_of_its_name(device: Literal["cpu", "cuda"]) -> None:
    chosen = choose(None, device, None, None)
    assert (chosen.device_class, chosen.name) == (DeviceClass(device), device)
    assert chosen.protocol == protocols.load(device)


@pytest.mark.parametrize("content", [SHIPPED.read_text(), "protocol: {a: [", "train: {epochs: 3}"])
def test_a_params_file_in_the_folder_is_ignored_with_one_line(
    content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("params.yaml").write_text(content)
    Path("params.yaml").chmod(0)
    assert choose(None, None, None, None).name in protocols.names()
    assert named_protocol(None, None) is None
    assert capsys.readouterr().err == (
        "note: the params.yaml of this folder is not read; to use it, give --params params.yaml\n"
    )


@pytest.mark.parametrize("kind", ["folder", "fifo", "link in a loop", "dangling link"])
def test_a_params_file_that_is_not_a_regular_file_is_not_touched(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("params.yaml")
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link in a loop":
            path.symlink_to("params.yaml")
        case _:
            path.symlink_to("nowhere")
    assert choose(None, None, None, None).name in protocols.names()
    assert capsys.readouterr().err == ""


def test_naming_a_device_a_protocol_or_the_file_prints_no_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("params.yaml").write_text(SHIPPED.read_text())
    assert choose(None, "cpu", None, None).name == "cpu"
    assert choose(None, None, "cpu", None).name == "cpu"
    named = choose(Path("params.yaml"), None, None, None)
    assert named.protocol == Params.load(SHIPPED).protocol
    assert capsys.readouterr().err == ""


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
