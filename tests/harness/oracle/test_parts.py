"""Parts hold every element once, in order, and are views."""

from __future__ import annotations

import pytest
import torch

from cudal1.harness.oracle import parts
from cudal1.harness.oracle.parts import flat_parts, in_parts


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CPU_ELEMENTS", 10)


@pytest.mark.parametrize(
    "shape", [(), (1,), (10,), (11,), (3, 7), (2, 3, 5)], ids=lambda shape: str(shape)
)
def test_flat_parts_are_all_elements_in_order(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    found = list(flat_parts(tensor, -tensor))
    assert torch.equal(torch.cat([one for one, _ in found]), tensor.flatten())
    assert torch.equal(torch.cat([other for _, other in found]), -tensor.flatten())
    assert max(len(one) for one, _ in found) <= 10


@pytest.mark.parametrize(("rows", "columns"), [(1, 25), (4, 25), (50, 3)])
def test_parts_of_rows_are_columns(rows: int, columns: int) -> None:
    tensor = torch.randn(rows, columns)
    found = [part for (part,) in in_parts(tensor)]
    assert torch.equal(torch.cat(found, dim=1), tensor)
    assert all(part.numel() <= max(10, rows) for part in found)
    assert found[0].data_ptr() == tensor.data_ptr()


def test_an_empty_tensor_has_no_parts() -> None:
    assert list(flat_parts(torch.empty(0, 4))) == []
