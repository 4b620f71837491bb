"""A kill table: which wrong candidates the correctness check of a problem notices.

`cudal1.harness.admission.mutants` makes kill tables; `cudal1.ledger` stores them.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from cudal1.protocol import PrecisionClass
from cudal1.record import Record


class Mutant(Record):
    """One way of skipping work, and whether the check noticed it."""

    name: str
    """Name of the change, such as `zeros`; `zeros[1]` when only the second output was changed."""
    killed: bool | None
    """True if the check noticed the mutant. None where it does not apply to the problem: there is
    nothing to skip, or skipping changed no bit of any output."""
    family: str | None = None
    """Kind of inputs that revealed it; present exactly when it was killed."""
    num_inputs: int | None = Field(default=None, ge=1)
    """Number of inputs until the check noticed it, that one included; of a survivor, all inputs."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if (self.family is not None) != (self.killed is True):
            raise ValueError(f"killed={self.killed} with family {self.family!r}")
        if (self.num_inputs is None) != (self.killed is None):
            raise ValueError(f"killed={self.killed} after {self.num_inputs} inputs")
        return self


class KillTable(Record):
    """Every mutant of one problem, under the correctness check of one protocol."""

    problem_id: str
    precision: PrecisionClass
    """Precision class that the check asked for."""
    mutants: tuple[Mutant, ...]
    refused_reference: str | None = None
    """The input on which the check refuses the reference's own output; None as it should be."""
    invariants: tuple[str, ...] = ()
    """Properties of the problem's inputs in every draw, a line each. The check's inputs keep
    them."""

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        """The mutants that would be judged correct."""
        return tuple(mutant for mutant in self.mutants if mutant.killed is False)

    @property
    def rejection(self) -> str | None:
        """The reason why the problem cannot be judged, in one line; None when it can."""
        if self.refused_reference is not None:
            return f"the check refuses the reference's own output: {self.refused_reference}"
        if self.survivors:
            names = ", ".join(mutant.name for mutant in self.survivors)
            return f"the check would let wrong candidates through: {names}"
        return None
