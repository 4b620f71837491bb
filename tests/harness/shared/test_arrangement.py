"""Strides and sharing survive copying, conversion and change of values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.shared.arrangement import Arrangement
from cudal1.harness.shared.wire import ALIGNMENT

CPU = torch.device("cpu")
Tensors = list[torch.Tensor]


def pair(make: Callable[[torch.Tensor], Tensors]) -> Callable[[], Tensors]:
    return lambda: make(torch.randn(6, 6))


KINDS: dict[str, Callable[[], Tensors]] = {
    "contiguous": lambda: [torch.randn(3, 4), torch.randn(5)],
    "transposed": lambda: [torch.randn(3, 4).t()],
    "channels last": lambda: [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
    "channels last of one channel": lambda: [torch.randn(2, 4, 5, 1).permute(0, 3, 1, 2)],
    "rows repeated": lambda: [torch.randn(1, 4).expand(3, 4)],
    "columns repeated": lambda: [torch.randn(3, 1).expand(3, 4)],
    "one number repeated": lambda: [torch.randn(()).expand(3, 4)],
    "windows": lambda: [torch.randn(20).unfold(0, 6, 2)],
    "overlap in two dimensions": lambda: [torch.randn(60).as_strided((4, 5), (3, 4), 7)],
    "rows left out": lambda: [torch.randn(9, 4)[::2]],
    "columns of a larger tensor": lambda: [torch.randn(4, 100)[:, 17:20]],
    "behind the first element": lambda: [torch.randn(13)[1:].view(3, 4)],
    "no dimension": lambda: [torch.randn(()), torch.randn(3)[1]],
    "no elements": lambda: [torch.randn(2, 3), torch.empty(0), torch.randn(4, 3)[2:2]],
    "both a tensor and its transpose": pair(lambda x: [x, x.t()]),
    "twice the same": pair(lambda x: [x, x]),
    "interleaved parts": pair(lambda x: list(x.chunk(3, dim=-1))),
    "parts and the whole": pair(lambda x: [x[:2], x, x[3:]]),
    "overlapping parts": pair(lambda x: [x[:4], x[2:]]),
    "diagonal and whole": pair(lambda x: [x.diagonal(), x]),
    "numbers and their bits": pair(lambda x: [x, x.view(torch.int32)]),
    "half numbers": lambda: [torch.randn(3, 5).half().t(), torch.arange(4).expand(2, 4)],
    "not a number": lambda: [torch.full((3, 1), float("nan")).expand(3, 4)],
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def same(mine: Tensors, theirs: Tensors) -> bool:
    return all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a != a) & (b != b)).all())
        for a, b in zip(mine, theirs, strict=True)
    )


@each_kind
def test_views_of_filled_storages_equal_the_tensors(kind: str) -> None:
    tensors = KINDS[kind]()
    arrangement = Arrangement.of(tensors)
    storages = arrangement.filled(tensors, CPU)
    assert storages is not None
    again = arrangement.of_storages(storages)
    assert same(again, tensors)
    assert [a.stride() for a in again] == [t.stride() for t in tensors]
    assert Arrangement.of(again) == arrangement


@each_kind
def test_addresses_keep_their_alignment(kind: str) -> None:
    tensors = [t for t in KINDS[kind]() if t.numel()]
    arrangement = Arrangement.of(tensors)
    before = [t.storage_offset() * t.itemsize % ALIGNMENT for t in tensors]
    pairs = zip(arrangement.views, tensors, strict=True)
    assert [view.offset * t.itemsize % ALIGNMENT for view, t in pairs] == before


@each_kind
def test_tensors_that_shared_memory_share_it_again_and_no_others_do(kind: str) -> None:
    tensors = [t for t in KINDS[kind]() if t.numel()]
    storages = Arrangement.of(tensors).filled(tensors, CPU)
    assert storages is not None
    again = Arrangement.of(tensors).of_storages(storages)
    for group in (tensors, again):
        group[0].as_strided((1,), (1,)).fill_(1)
    assert same(again, tensors)


@each_kind
def test_each_part_is_changed_once_and_all_its_views_change_with_it(kind: str) -> None:
    tensors = KINDS[kind]()
    arrangement = Arrangement.of(tensors)
    storages = arrangement.filled(tensors, CPU)
    assert storages is not None
    changed = arrangement.of_storages(arrangement.changed(storages, lambda part: part * 2.0))
    if kind == "numbers and their bits":  # no change of both has a meaning
        assert same(changed, tensors)
    else:
        doubled = [t * 2.0 if t.is_floating_point() else t for t in tensors]
        assert same(changed, doubled)
    assert same(arrangement.of_storages(storages), tensors)


def test_a_change_may_return_a_view_of_its_argument() -> None:
    tensors = [torch.randn(3, 4).t()]
    arrangement = Arrangement.of(tensors)
    storages = arrangement.filled(tensors, CPU)
    assert storages is not None
    changed = arrangement.changed(storages, lambda part: part[:1].expand_as(part))
    (found,) = arrangement.of_storages(changed)
    assert found.equal(tensors[0][:1].expand(4, 3))


def test_memory_between_the_elements_of_a_view_is_not_copied() -> None:
    tensors = [torch.full((4, 100), 7.0)[:, ::10]]
    storages = Arrangement.of(tensors).filled([tensors[0] * 0 + 3.0], CPU)
    assert storages is not None
    assert set(storages[0].tolist()) == {0.0, 3.0}


def test_repeated_and_shared_elements_take_memory_once() -> None:
    x = torch.randn(64, 64)
    arrangement = Arrangement.of([x, x.t(), x, torch.randn(1, 64).expand(1000, 64)])
    assert [spec.shape for spec in arrangement.storages] == [(4096,), (64,)]


def test_distant_tensors_of_one_storage_get_a_storage_each() -> None:
    x = torch.randn(1 << 16)
    arrangement = Arrangement.of([x[:8], x[-8:]])
    assert sum(spec.num_bytes for spec in arrangement.storages) <= 2 * (8 * 4 + ALIGNMENT)


def test_tensors_that_shared_memory_once_must_always_share_it() -> None:
    x, y = torch.randn(4), torch.randn(4)
    arrangement = Arrangement.of([x, x])
    assert arrangement.filled([x, x], CPU) is not None
    assert arrangement.filled([x, x.clone()], CPU) is not None  # equal values look alike
    assert arrangement.filled([x, y], CPU) is None
    windows = Arrangement.of([torch.randn(9).unfold(0, 3, 1)])
    assert windows.filled([torch.randn(7, 3)], CPU) is None


def test_a_complaint_names_other_shapes_types_and_numbers_of_tensors() -> None:
    arrangement = Arrangement.of([torch.randn(4, 3)])
    assert arrangement.complaint([torch.randn(3, 4).t()]) == ""
    assert (
        arrangement.complaint([torch.randn(4, 2)]) == "input 0: float32 (4, 3), then float32 (4, 2)"
    )
    assert "float64" in arrangement.complaint([torch.randn(4, 3).double()])
    assert arrangement.complaint([]) == "1 inputs, then 0"


def test_the_flag_for_gradients_is_kept() -> None:
    flagged, plain = Arrangement.of([torch.randn(3, requires_grad=True), torch.randn(3)]).views
    assert (flagged.wants_grad, plain.wants_grad) == (True, False)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    strides=st.lists(st.integers(0, 7), min_size=4, max_size=4),
    offset=st.integers(0, 40),
)
def test_any_strides_are_kept(sizes: list[int], strides: list[int], offset: int) -> None:
    base = torch.arange(300.0)
    tensor = base.as_strided(sizes, strides[: len(sizes)], offset)
    arrangement = Arrangement.of([tensor])
    storages = arrangement.filled([tensor], CPU)
    assert storages is not None
    (again,) = arrangement.of_storages(storages)
    assert (again.stride(), again.equal(tensor)) == (tensor.stride(), True)
    (changed,) = arrangement.of_storages(arrangement.changed(storages, lambda part: part + 1.0))
    assert changed.equal(tensor + 1.0)
