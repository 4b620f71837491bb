"""The state of a search for one module, as it is shown while it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cudal1.candidate import Candidate
from cudal1.verdict import Status, Verdict


@dataclass(frozen=True)
class Find:
    """A judged program, with its author."""

    candidate: Candidate
    verdict: Verdict
    author: str

    @property
    def speedup(self) -> float:
        """Return the certified speedup; 0 for a failure."""
        return self.verdict.speedup or 0.0


@dataclass
class Tally:
    """The outcomes of one author's answers."""

    num_answers: int = 0
    num_copies: int = 0
    """Answers with a program that was known: the reference itself, or an earlier answer."""
    num_unusable: int = 0
    """Answers without code, or without a kernel in the language that was asked for."""
    num_failed: int = 0
    """Requests without an answer."""
    statuses: Counter[Status] = field(default_factory=Counter[Status])
    best: float | None = None
    """Best certified speedup; None without a success."""

    @property
    def num_correct(self) -> int:
        """Return the number of its successes."""
        return self.statuses[Status.CORRECT]

    def count(self, verdict: Verdict) -> None:
        """Count the verdict on a new program."""
        self.statuses[verdict.status] += 1
        if verdict.is_successful:
            self.best = max(self.best or 0.0, verdict.speedup or 0.0)


@dataclass
class State:
    """The attempts and finds so far."""

    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    """Outcomes by author, in the order of their first turns."""
    best: Find | None = None
    """The fastest success with a certified gain; None without one."""
    finds: dict[str, Find] = field(default_factory=dict[str, Find])
    """All judged programs by the candidate's id."""
    num_since: int = 0
    """New verdicts since the best was found."""
    doing: str = "starting"
    """The work of this moment, in words."""

    def tally(self, author: str) -> Tally:
        """Return an author's outcomes, which may be none."""
        return self.tallies.setdefault(author, Tally())

    def judged(self, find: Find) -> bool:
        """Note a verdict; return whether it is the best gain so far."""
        self.finds[find.candidate.id] = find
        self.tally(find.author).count(find.verdict)
        self.num_since += 1
        if find.speedup <= max(1.0, 0.0 if self.best is None else self.best.speedup):
            return False
        self.best, self.num_since = find, 0
        return True

    @property
    def gains(self) -> list[Find]:
        """Return all certified gains, the largest first."""
        found = [find for find in self.finds.values() if find.speedup > 1]
        return sorted(found, key=lambda find: find.speedup, reverse=True)
