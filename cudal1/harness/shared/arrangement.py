"""Describe where tensors lie in memory: storages, and views of them.

A generator may draw transposed, channels-last, expanded or overlapping tensors, and tensors that
share memory. Their values are kept, sent and changed as storages, and views are made anew. So
strides and sharing survive, and a shared element has one value. Tied weights are arranged likewise.

Threat: between the elements of a view may lie earlier content of this process's memory. Storages
are made of zeros, and only elements of views are copied into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudal1.harness.shared.wire import ALIGNMENT, DTYPE_BYTES, TensorSpec, View

if TYPE_CHECKING:
    import torch

    Tensors = Sequence[torch.Tensor]

BYTES = "uint8"
"""Type of a storage with views of several types."""
WIDEST = max(DTYPE_BYTES.values())


@dataclass(frozen=True)
class Arrangement:
    """The storages of a list of tensors, and the tensors as views of them."""

    storages: tuple[TensorSpec, ...]
    views: tuple[View, ...]
    parts: tuple[View, ...]
    """Views that cover all elements and overlap nowhere: values are changed in these."""
    is_plain: bool
    """True if each tensor is contiguous and has a storage of its own, from its first byte on."""
    is_shared: bool
    """True if an element of a storage may belong to several tensors, or to one tensor at several
    places."""

    @classmethod
    def of(cls, tensors: Tensors) -> Arrangement:
        """Return the arrangement of dense tensors of types that the wire knows."""
        storages: list[TensorSpec] = []
        views: dict[int, View] = {}
        for group in _groups(tensors):
            spec, members = _storage(group, number=len(storages))
            storages.append(spec)
            views |= members
        ordered = tuple(views[place] for place in range(len(tensors)))
        return cls(
            tuple(storages),
            ordered,
            tuple(part for number in range(len(storages)) for part in _parts(number, ordered)),
            is_plain=len(storages) == len(tensors)
            and all(
                view.offset == 0 and tensor.is_contiguous()
                for view, tensor in zip(ordered, tensors, strict=True)
            ),
            is_shared=len(storages) < len(tensors) or any(map(may_overlap, tensors)),
        )

    @property
    def is_sound(self) -> bool:
        """True if every view lies within one of the storages, as views of real tensors do."""
        return (
            len(self.views) > 0
            and all(spec.dtype in DTYPE_BYTES and len(spec.shape) == 1 for spec in self.storages)
            and all(self._holds(view) for view in (*self.views, *self.parts))
        )

    def _holds(self, view: View) -> bool:
        numbers = (*view.shape, *view.strides, view.offset, view.storage)
        is_view = len(view.shape) == len(view.strides) and min(numbers) >= 0
        if not is_view or view.storage >= len(self.storages) or view.dtype not in DTYPE_BYTES:
            return False
        end = _end([view]) if _count(view) else 0
        return end * DTYPE_BYTES[view.dtype] <= self.storages[view.storage].num_bytes

    def complaint(self, tensors: Tensors) -> str:
        """Return the first difference in shapes or types from this arrangement; empty if none."""
        if len(tensors) != len(self.views):
            return f"{len(self.views)} inputs, then {len(tensors)}"
        for place, (tensor, view) in enumerate(zip(tensors, self.views, strict=True)):
            if tensor.shape != view.shape or dtype_name(tensor) != view.dtype:
                return (
                    f"input {place}: {view.dtype} {view.shape}, "
                    f"then {dtype_name(tensor)} {tuple(tensor.shape)}"
                )
        return ""

    def filled(self, tensors: Tensors, device: torch.device) -> list[torch.Tensor] | None:
        """Return storages with the values of tensors for which `complaint` is empty.

        Return None where tensors that share memory here have different values.
        """
        import torch

        storages = [
            torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
            for spec in self.storages
        ]
        for view, tensor in zip(self.views, tensors, strict=True):
            for place, stride in enumerate(view.strides):
                if stride == 0 and tensor.shape[place] > 1:
                    tensor = tensor.narrow(place, 0, 1)
            self._window(storages, _narrowed(view)).copy_(tensor)
        if not self.is_shared:
            return storages
        given = zip(self.of_storages(storages), tensors, strict=True)
        return storages if all(_is_same(mine, theirs) for mine, theirs in given) else None

    def flat(self, tensors: Tensors) -> list[torch.Tensor] | None:
        """Return what `filled` does, on the tensors' device; plain tensors are not copied."""
        if self.is_plain:
            return [tensor.reshape(-1) for tensor in tensors]
        return self.filled(tensors, tensors[0].device)

    def of_storages(self, storages: Tensors) -> list[torch.Tensor]:
        """Return the tensors: views of storages, which may be of another floating-point type."""
        return [self._window(storages, view) for view in self.views]

    def changed(
        self, storages: Tensors, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return new storages in which each part of floating-point numbers was changed once."""
        changed = [storage.clone() for storage in storages]
        for part in self.parts:
            target = self._window(changed, part)
            if target.is_floating_point():
                target.copy_(change(target.clone()))
        return changed

    def _window(self, storages: Tensors, view: View) -> torch.Tensor:
        import torch

        storage = storages[view.storage]
        if self.storages[view.storage].dtype != view.dtype:
            storage = storage.view(getattr(torch, view.dtype))
        return storage.as_strided(view.shape, view.strides, storage.storage_offset() + view.offset)


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of the type of its elements, as the wire has it."""
    return str(tensor.dtype).removeprefix("torch.")


def may_overlap(tensor: torch.Tensor) -> bool:
    """Return whether several of its elements may lie at one address."""
    return _may_overlap(tuple(tensor.shape), tensor.stride())


@dataclass(frozen=True)
class _Placed:
    """A tensor by its addresses."""

    number: int
    tensor: torch.Tensor
    start: int
    end: int


def _groups(tensors: Tensors) -> list[list[_Placed]]:
    """Return tensors by storage, in order of the first of each; tensors that overlap share one."""
    groups: list[list[_Placed]] = []
    last_end, last_device = 0, None
    placed = [_placed(number, tensor) for number, tensor in enumerate(tensors)]
    for each in sorted(placed, key=lambda p: (str(p.tensor.device), p.start, p.number)):
        fits = bool(groups) and (each.start - groups[-1][0].start) % each.tensor.itemsize == 0
        if fits and each.start < min(last_end, each.end) and each.tensor.device == last_device:
            groups[-1].append(each)
            last_end = max(last_end, each.end)
        else:
            groups.append([each])
            last_end, last_device = each.end, each.tensor.device
    return sorted(groups, key=lambda group: min(each.number for each in group))


def _placed(number: int, tensor: torch.Tensor) -> _Placed:
    start = tensor.data_ptr()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * stride for size, stride in pairs) + 1 if tensor.numel() else 0
    return _Placed(number, tensor, start, start + reach * tensor.itemsize)


def _storage(group: list[_Placed], *, number: int) -> tuple[TensorSpec, dict[int, View]]:
    """Return the storage of a group, and its members by their numbers.

    The storage begins a little before the first element, so that no address is aligned better than
    drawn.
    """
    first = group[0]
    dtypes = {dtype_name(each.tensor) for each in group}
    before = first.tensor.storage_offset() * first.tensor.itemsize % ALIGNMENT
    start, end = first.start - before, max(each.end for each in group)
    members = {
        each.number: View(
            number,
            dtype_name(each.tensor),
            tuple(each.tensor.shape),
            each.tensor.stride(),
            (each.start - start) // each.tensor.itemsize,
            each.tensor.requires_grad,
        )
        for each in group
    }
    if len(dtypes) > 1:
        return TensorSpec(BYTES, (-(-(end - start) // WIDEST) * WIDEST,)), members
    (dtype,) = dtypes
    count = (end - start) // DTYPE_BYTES[dtype] if end > first.start else 0
    return TensorSpec(dtype, (count,)), members


def _parts(number: int, views: Sequence[View]) -> Iterator[View]:
    """Yield parts of a storage; none if its views have several types."""
    mine = [_narrowed(view) for view in views if view.storage == number]
    if len({view.dtype for view in mine}) > 1:
        return
    if len(set(mine)) == 1 and not _may_overlap(mine[0].shape, mine[0].strides):
        yield mine[0]
    else:
        yield from _disjoint(mine) or [_flat(mine)]


def _disjoint(views: list[View]) -> list[View]:
    """Return views that cover all the others and overlap nowhere; empty if there are none."""
    import torch

    taken = torch.zeros(_end(views), dtype=torch.bool)
    chosen: list[View] = []
    for view in sorted(views, key=lambda v: -_count(v)):
        here = taken.as_strided(view.shape, view.strides, view.offset)
        if bool(here.all()):
            continue
        if bool(here.any()) or _may_overlap(view.shape, view.strides):
            return []
        here.fill_(True)
        chosen.append(view)
    return chosen


def _flat(views: list[View]) -> View:
    """Return all of a storage from the first element of any view on, as one view."""
    start = min(view.offset for view in views)
    shape = (_end(views) - start,)
    return replace(views[0], shape=shape, strides=(1,), offset=start)


def _end(views: list[View]) -> int:
    """Return the index after the last element of any view."""
    return max(
        view.offset
        + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
        + 1
        for view in views
    )


def _count(view: View) -> int:
    count = 1
    for size in view.shape:
        count *= size
    return count


def _narrowed(view: View) -> View:
    """Return the view without its repetitions, and without its flag."""
    pairs = zip(view.shape, view.strides, strict=True)
    shape = tuple(min(size, 1) if stride == 0 else size for size, stride in pairs)
    return replace(view, shape=shape, wants_grad=False)


def _may_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a dimension does not reach over all that smaller strides reach."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def _is_same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two tensors have equal values; NaN equals NaN."""
    theirs = theirs.to(mine.device)
    same = mine == theirs
    if mine.is_floating_point():
        same |= (mine != mine) & (theirs != theirs)
    return bool(same.all())
