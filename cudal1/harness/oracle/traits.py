"""Record what is learned of a reference once: it takes a hundred calls, half of them in float64.

It is a record, so that it can be kept as JSON (`known_references`) and handed from the process that
tries a reference to the one that judges. Threat: that process runs a problem's own code, which may
write what it likes. So whatever comes from there is checked here to make sense. It can spoil the
verdicts on that problem alone, as its source can.
"""

from __future__ import annotations

import ast
from typing import Self

from pydantic import Field, model_validator

from cudal1.harness.inputs.domain import Domain
from cudal1.harness.inputs.families import FAMILIES, OWN
from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.roofline import Work
from cudal1.harness.shared.arrangement import Arrangement
from cudal1.harness.shared.wire import DTYPE_BYTES, TensorSpec
from cudal1.record import Record

FARTHEST = 1e30
"""Stands for an infinite distance, which JSON does not hold."""


class FamilyError(Record):
    """The largest error of a reference against the exact answer on one family."""

    relative_l2: float = Field(ge=0)
    element: float = Field(ge=0)

    @classmethod
    def of(cls, error: ReferenceError) -> Self:
        """Return the record of an error, without the answers of a single draw."""
        return cls(relative_l2=error.relative_l2, element=error.element)

    @property
    def reference_error(self) -> ReferenceError:
        """The error as comparisons take it."""
        return ReferenceError(self.relative_l2, self.element)


class Traits(Record):
    """The traits of a reference that an oracle learns when it first meets it."""

    arrangement: Arrangement
    """Arrangement of inputs in memory."""
    uses_others: bool
    """True if inputs are drawn with other generators of random numbers than PyTorch's."""
    output_specs: tuple[TensorSpec, ...] = Field(min_length=1)
    input_effect: float = Field(ge=0)
    """Relative L2 distance by which outputs move when the inputs, or the least effective one, are
    drawn anew."""
    weakness: str | None
    """Reason why no gain counts: the check would let a candidate through that leaves out work. None
    where the outputs depend on all inputs."""
    runs_in_float64: bool
    off_by: float = Field(ge=0, le=FARTHEST)
    """Largest error of its outputs against those in float64 on its own inputs, relative to the
    latter; for integers, the share that differs."""
    mutates_inputs: bool
    can_change_weights: bool
    is_seeded: bool
    """True if answers depend on the seed under which its constructor draws."""
    is_carried: bool
    """True if its weights, loaded by name, bring everything along that was drawn."""
    families: dict[str, FamilyError]
    """Families of inputs that say something about the reference, its own first."""
    work: Work
    """Work that a call provably cannot do without."""
    domain: Domain
    """Invariants of the inputs in every draw."""
    constants: str
    """Literal of a call's arguments that are no tensors, by their places."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        names = list(self.families)
        if names[:1] != [OWN] or not set(names) <= set(FAMILIES):
            raise ValueError(f"families {names}")
        if not self.arrangement.is_sound:
            raise ValueError(f"arrangement {self.arrangement}")
        if not all(
            spec.dtype in DTYPE_BYTES and min(spec.shape, default=1) > 0
            for spec in self.output_specs
        ):
            raise ValueError(f"outputs {self.output_specs}")
        if not self.domain.fits([view.shape for view in self.arrangement.views]):
            raise ValueError(f"domain {self.domain}")
        constants = ast.literal_eval(self.constants)
        if not isinstance(constants, dict) or not all(
            type(place) is int and place >= 0 for place in constants
        ):
            raise ValueError(f"constants {self.constants}")
        if min(self.work.num_bytes, self.work.num_flops) < 0:
            raise ValueError(f"work {self.work}")
        return self
