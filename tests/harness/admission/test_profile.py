"""Tests of the profile of a reference, made in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.errors import SuiteError
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.admission.profile import profile_of
from cudal1.harness.admission.reference_profile import OperatorTime, ReferenceProfile
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.settings import protocols

pytestmark = pytest.mark.slow

LINEAR = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(32, 16))

    def forward(self, x, factor):
        return torch.relu(x @ self.weight) * factor


def get_inputs():
    return [torch.randn(8, 32), 2.0]


def get_init_inputs():
    return []
"""
ENDING = LINEAR.replace("return torch.relu", "import os; os._exit(3); return torch.relu")


def problem_of(source: str) -> Problem:
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="r",
        source=source,
    )


def profile(source: str, known: KnownReferences | None = None) -> ReferenceProfile:
    device = find_device(DeviceClass.CPU)
    return profile_of(problem_of(source), protocols.load("cpu"), device, known=known)


def test_a_profile_counts_operators_bytes_and_flops(tmp_path: Path) -> None:
    known = KnownReferences(tmp_path / "known")
    found = profile(LINEAR, known)
    by_name = {each.name: each.num_calls for each in found.operators}
    assert by_name["aten::mm"] == by_name["aten::relu"] == by_name["aten::mul"] == 1
    assert (found.input_bytes, found.weight_bytes, found.output_bytes) == (1024, 2048, 512)
    assert found.num_flops == 2 * 8 * 32 * 16
    assert found.inputs == ("float32[8, 32]", "2.0")
    assert 0 < found.roofline_share <= 1
    assert profile(LINEAR, known) == found  # times, too: it was kept


def test_a_reference_that_ends_its_process_costs_only_its_profile() -> None:
    with pytest.raises(SuiteError, match="cannot be profiled: ends its process"):
        profile(ENDING)


def test_lines_are_few_and_name_the_largest_operators_first() -> None:
    operators = tuple(
        OperatorTime(name=f"aten::op{number}", num_calls=1, self_us=20.0 - number)
        for number in range(20)
    )
    found = ReferenceProfile(
        problem_id="p",
        device="cpu",
        inputs=(),
        call_us=10.0,
        operators=operators,
        num_launches=20,
        input_bytes=4_000_000,
        weight_bytes=0,
        output_bytes=1,
        num_flops=0,
        roofline_us=20.0,
    )
    assert len(found.lines) == 12
    assert "op0" in found.lines[3]
    assert found.roofline_share == 1.0
    assert all(line.isascii() for line in found.lines)
