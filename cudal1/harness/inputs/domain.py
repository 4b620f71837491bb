"""The domain of a problem: the invariants of its inputs, and inputs that keep them.

A kernel may rely on what holds of every draw: a triangular matrix, targets of -1 and 1, sorted
rows. Families of inputs (`families`) are there for kernels that are right by luck, so they stay
inside the domain. Invariants are found in several draws. Only those count that luck cannot have
made (`Invariant.is_sure`): numbers that merely happened to be large are no promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cudal1.harness.inputs.fixed_elements import Fixed, Kept
from cudal1.harness.inputs.invariants import Invariant
from cudal1.harness.inputs.relations import Equal, Ordered, Transposed
from cudal1.harness.inputs.relations import suspected as suspected_relations
from cudal1.harness.inputs.row_invariants import Repeated, Sorted, SumsToOne, Symmetric, UnitNorm
from cudal1.harness.inputs.value_invariants import Bounds, Values, Whole
from cudal1.harness.inputs.zero_patterns import Band, Blocks, Diagonal
from cudal1.record import Record

if TYPE_CHECKING:
    import torch

MIN_DRAWS, MAX_DRAWS = 4, 32
DRAWN_ELEMENTS = 1 << 20
"""Elements that are drawn, of all inputs together, unless the minimum or maximum of draws
decides."""
SAME = 64.0
"""Units in the last place, of its norm, by which a restored tensor may differ from the drawn one
where only rounding is left of a family's change."""

AnyInvariant = Annotated[
    Values
    | Whole
    | Bounds
    | Repeated
    | Symmetric
    | Band
    | Blocks
    | Diagonal
    | Kept
    | Sorted
    | SumsToOne
    | UnitNorm
    | Fixed,
    Field(discriminator="kind"),
]
"""In the order in which a changed tensor is restored: values first, sums of them last."""
AnyRelation = Annotated[Equal | Transposed | Ordered, Field(discriminator="kind")]


class Domain(Record):
    """All invariants of a problem's inputs in every draw; it can be stored as JSON."""

    inputs: tuple[tuple[AnyInvariant, ...], ...] = ()
    """The invariants of each input."""
    relations: tuple[AnyRelation, ...] = ()

    def lines(self, places: Sequence[int] | None = None) -> tuple[str, ...]:
        """Return the invariants in words, a line for each input or relation that has some.

        Args:
            places: the tensors' places in a call; None: a call has no other arguments.
        """
        if places is None:
            places = range(len(self.inputs))
        said = [
            f"input {place}: {'; '.join(each.text() for each in found)}"
            for place, found in zip(places, self.inputs, strict=True)
            if found
        ]
        of_two = (
            relation.text(places[relation.first], places[relation.second])
            for relation in self.relations
        )
        return (*said, *of_two)

    def kept(
        self, changed: Sequence[torch.Tensor], own: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        """Return changed inputs brought back into the domain; None where all are as drawn.

        Args:
            changed: the inputs that a family has changed.
            own: the inputs that were drawn; they stand for inputs that cannot be brought back.
        """
        if self.is_free:
            return list(changed)
        result = [
            self._restored(place, *pair)
            for place, pair in enumerate(zip(changed, own, strict=True))
        ]
        relations = [each for each in self.relations if own[each.first].is_floating_point()]
        for relation in relations:
            relation.restore(result)
        for place, pair in enumerate(zip(result, own, strict=True)):
            if not all(each.holds(*pair) for each in self._breakable(place, pair[1])):
                result[place] = own[place]
        while broken := [each for each in relations if not each.holds(result)]:
            relations = [each for each in relations if each not in broken]  # once is enough
            for place in {each for relation in broken for each in relation.places}:
                result[place] = own[place]
        related = {place for relation in relations for place in relation.places}
        is_own = [
            pair[0] is pair[1]
            or ((place in related or bool(self.inputs[place])) and _is_same(*pair))
            for place, pair in enumerate(zip(result, own, strict=True))
        ]
        return None if all(is_own) else result

    @property
    def is_free(self) -> bool:
        """Return whether no input has an invariant or a relation."""
        return not any(self.inputs) and not self.relations

    def fits(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether inputs of these shapes can obey it; a domain from a file may not fit."""
        if self.is_free:
            return True
        places = [place for relation in self.relations for place in relation.places]
        return (
            len(self.inputs) == len(shapes)
            and all(0 <= place < len(shapes) for place in places)
            and all(
                each.fits(shape)
                for found, shape in zip(self.inputs, shapes, strict=True)
                for each in found
            )
        )

    def _breakable(self, place: int, drawn: torch.Tensor) -> tuple[AnyInvariant, ...]:
        """Return the invariants that a family may break: it leaves integers alone."""
        return self.inputs[place] if drawn.is_floating_point() else ()

    def _restored(self, place: int, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        for each in self._breakable(place, own):
            changed = each.restored(changed, own)
        return changed.contiguous()


def num_draws(inputs: Sequence[torch.Tensor]) -> int:
    """Return the number of draws to look at: more of few elements, where luck is likelier."""
    elements = sum(tensor.numel() for tensor in inputs)
    return max(MIN_DRAWS, min(MAX_DRAWS, DRAWN_ELEMENTS // max(1, elements)))


def domain_of(draws: Iterator[list[torch.Tensor]]) -> Domain:
    """Return the domain of at least two draws; one draw is held at a time.

    Tensors are examined where they lie. Most have no invariant, which is shown by a few thousand
    elements of the first draw and one look at all.
    """
    first = next(draws)
    found: list[list[AnyInvariant]] = []
    relations: list[AnyRelation] = []
    count = 1
    for count, drawn in enumerate(draws, start=2):
        if count == 2:
            found = [_suspected(*pair) for pair in zip(first, drawn, strict=True)]
            relations = list(suspected_relations(first))
        found = [_after(*each) for each in zip(found, drawn, first, strict=True)]
        relations = [each for each in relations if each.holds(drawn)]
    inputs = tuple(_sure(*each, count) for each in zip(found, first, strict=True))
    return Domain(
        inputs=inputs,
        relations=tuple(
            each
            for each in relations
            if not (_is_fixed(inputs[each.first]) and _is_fixed(inputs[each.second]))
            and each.is_sure(first, count)
        ),
    )


def _suspected(first: torch.Tensor, second: torch.Tensor) -> list[AnyInvariant]:
    """Return possible invariants of an input from two draws, in the order of restoring."""
    if first.numel() == 0:
        return []
    dims, is_bool = range(first.dim()), str(first.dtype) == "torch.bool"
    places = [
        Band.suspected(first, second),
        Blocks.suspected(first, second),
        Diagonal.suspected(first),
    ]
    kept = Kept.suspected(first, second, _always_same(places, first))
    found: list[AnyInvariant | None] = []
    if not is_bool:
        same = _always_same([*places, kept], first)
        found += [Values.suspected(first), Whole.suspected(first), Bounds.suspected(first, same)]
    found += [Repeated.suspected(first, dim) for dim in dims]
    found += [Symmetric.suspected(first), *places, kept]
    if not is_bool:
        found += [Sorted.suspected(first, dim) for dim in dims]
    found += [SumsToOne.suspected(first, dim) for dim in dims]
    if first.is_floating_point():
        found += [UnitNorm.suspected(first, dim) for dim in dims]
    found.append(Fixed.suspected(first, second))
    return [each for each in found if each is not None]


def _always_same(
    invariants: Iterable[Invariant | None], tensor: torch.Tensor
) -> torch.Tensor | None:
    """Return a mask of elements that these invariants keep the same in every draw, or None."""
    import torch

    same = None
    for each in invariants:
        if isinstance(each, Band | Blocks | Kept):
            mine = each.outside(tensor.device)
        elif isinstance(each, Diagonal):
            mine = torch.eye(*tensor.shape[-2:], dtype=torch.bool, device=tensor.device)
        else:
            continue
        same = mine if same is None else same | mine
    return None if same is None else same.expand(tensor.shape)


def _after(
    found: Sequence[AnyInvariant], drawn: torch.Tensor, first: torch.Tensor
) -> list[AnyInvariant]:
    left = (each.after(drawn, first) for each in found)
    return [each for each in left if each is not None]


def _sure(
    found: Sequence[AnyInvariant], first: torch.Tensor, count: int
) -> tuple[AnyInvariant, ...]:
    """Return the invariants that are not luck, without those that follow from others."""
    sure = [each for each in found if each.is_sure(first, count)]
    of_kind = {type(each): each for each in sure}
    if fixed := of_kind.get(Fixed):
        return (fixed,)
    repeated = {each.dim for each in sure if isinstance(each, Repeated)}
    band, blocks = of_kind.get(Band), of_kind.get(Blocks)
    implied: set[type[Invariant]] = set()
    if Values in of_kind:
        implied |= {Whole, Bounds, Kept}
    if Whole in of_kind:
        implied |= {Bounds, Kept}
    if SumsToOne in of_kind:
        implied |= {Bounds} if Values not in of_kind else {UnitNorm}
    if isinstance(band, Band) and isinstance(blocks, Blocks):
        implied.add(Band if blocks.num_outside() > band.num_outside() else Blocks)
    if isinstance(band, Band) and (band.below, band.above) == (0, 0):
        implied.add(Symmetric)
    if isinstance(band, Band) and min(band.below, band.above) < 0:
        implied.add(Diagonal)
    if len(repeated) > 1:
        implied.add(Symmetric)
    return tuple(
        each
        for each in sure
        if type(each) not in implied and not (isinstance(each, Sorted) and each.dim in repeated)
    )


def _is_fixed(found: Sequence[AnyInvariant]) -> bool:
    return any(isinstance(each, Fixed) for each in found)


def _is_same(mine: torch.Tensor, drawn: torch.Tensor) -> bool:
    """Return whether tensors are equal but for rounding."""
    import torch

    if torch.equal(mine, drawn) or not mine.is_floating_point():
        return torch.equal(mine, drawn)
    norm = torch.linalg.vector_norm
    dtype = torch.float64 if mine.dtype == torch.float64 else torch.float32
    off, size = (float(norm(each, dtype=dtype)) for each in (mine - drawn, drawn))
    return off <= SAME * torch.finfo(mine.dtype).eps * size
