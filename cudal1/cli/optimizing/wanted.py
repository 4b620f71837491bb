"""Hold what a run of `cudal1 optimize` was asked for, and the module that it saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1.candidate import Candidate
    from cudal1.cli.options.settings import Settings
    from cudal1.harness.admission.reference_profile import ReferenceProfile
    from cudal1.harness.device.device import Device
    from cudal1.ledger import Ledger
    from cudal1.problem import Admission, Problem
    from cudal1.program.backends import Backend
    from cudal1.services.judging import VerdictSource
    from cudal1.services.optimizing.authors import Author
    from cudal1.services.optimizing.budget import Budget
    from cudal1.services.optimizing.places import Places


@dataclass(frozen=True)
class Looked:
    """The module as it was seen before the search."""

    problem: Problem
    device: Device
    invariants: tuple[str, ...]
    profile: ReferenceProfile | None
    admission: Admission


@dataclass(frozen=True)
class Wanted:
    """The wishes of the options."""

    places: Places
    authors: list[Author]
    budget: Budget
    settings: Settings
    backend: Backend | None
    again: str
    """The command that judges a kept version again."""

    def source(self, ledger: Ledger, *, num_policies: int) -> VerdictSource:
        """Return a source of verdicts, with processes of its own."""
        from cudal1.services.judging import VerdictSource

        settings = self.settings
        return VerdictSource(
            ledger, settings.device_class, settings.protocol, None, num_policies=num_policies
        )

    def sessions(self, problem: Problem, candidate: Candidate) -> tuple[float, ...]:
        """Return a version's sessions, as `cudal1 check --update` measures them."""
        from cudal1.services.checking.here import Here
        from cudal1.services.checking.sessions import baseline
        from cudal1.services.judging import WAIT_S

        settings = self.settings
        with Here(
            settings.device_class,
            max_reference_ms=settings.max_reference_ms,
            time_limit_s=settings.trial_limit_s,
            wait_s=WAIT_S,
        ) as here:
            return baseline(problem, candidate, settings.protocol, here.judge)
