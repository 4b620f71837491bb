"""How much memory bursts may take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1.harness import plan
from cudal1.protocol import EvalProtocol

GIB = 1 << 30


@pytest.mark.parametrize(("total", "ring"), [(139, 8.0), (79, 79 / 16), (16, 1.0)])
def test_a_ring_takes_a_small_share_of_a_gpu(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch, total: int, ring: float
) -> None:
    protocol = quick.model_copy(update={"ring_bytes": 8 * GIB})
    properties = SimpleNamespace(total_memory=total * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert plan.ring_bytes(torch.device("cuda", 0), protocol) == ring * GIB


def test_on_a_cpu_the_protocol_alone_says_how_much(quick: EvalProtocol) -> None:
    assert plan.ring_bytes(torch.device("cpu"), quick) == quick.ring_bytes
