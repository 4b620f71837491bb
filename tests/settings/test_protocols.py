"""Tests that the shipped protocols can be used unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass
from cudal1.settings import protocols
from cudal1.settings.params import Params

SHIPPED = Path(__file__).parents[2] / "params.yaml"


@pytest.mark.parametrize("name", protocols.names())
def test_a_shipped_protocol_measures_time(name: str) -> None:
    assert protocols.load(name).timing


@pytest.mark.parametrize("device", [DeviceClass.CPU, DeviceClass.CUDA])
def test_there_is_one_protocol_for_a_cpu_and_one_for_a_gpu(device: DeviceClass) -> None:
    assert device.value in protocols.names()


def test_the_cpu_s_protocol_differs_from_the_pipeline_s_in_memory_only() -> None:
    mine, pipeline = protocols.load("cpu"), Params.load(SHIPPED).protocol
    assert mine.model_copy(update={"memory_bytes": pipeline.memory_bytes}) == pipeline


def test_the_quick_protocol_differs_in_time_alone() -> None:
    """Certified speedups rest on a bound as sure, and outputs are as exact.

    Noise costs more certificates, and a kernel that never ends costs less time.
    """
    quick, full = (protocols.load(name).model_dump() for name in ("cuda-quick", "cuda"))
    assert {key for key in full if quick[key] != full[key]} == {
        "correctness_stages",
        "burst_us",
        "max_quads",
        "certify_within",
        "dead_zone",
        "max_bucket_variance",
        "confirm_within",
        "build_timeout_s",
    }
    for wider in ("dead_zone", "max_bucket_variance", "confirm_within"):
        assert quick[wider] > full[wider]
    assert (full["max_bucket_variance"], full["confirm_within"]) == (0.005, 0.1), "the paper's"


def test_a_users_own_file_is_a_protocol(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text((protocols.FOLDER / "cpu.yaml").read_text())
    assert protocols.load(str(mine)) == protocols.load("cpu")


def test_an_unknown_protocol_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match="no protocol cup: give one of cpu, cuda, "):
        protocols.load("cup")


def test_a_wrong_key_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    text = (protocols.FOLDER / "cpu.yaml").read_text()
    mine.write_text(text.replace("min_quads", "quads"))
    with pytest.raises(ConfigError, match=r"min_quads: missing key; add it; quads: unknown key"):
        protocols.load(str(mine))
