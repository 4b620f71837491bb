"""Put answers into the ledger, each with its candidate or the reason for having none."""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.candidate import Candidate, Completion
from cudal1.extract.extract import extract
from cudal1.ledger import Ledger


def keep_completion(ledger: Ledger, completion: Completion) -> Candidate | None:
    """Store what was found in an answer: a candidate, or the reason why there is none."""
    return keep_completions(ledger, [completion])[0]


def keep_completions(ledger: Ledger, completions: Sequence[Completion]) -> list[Candidate | None]:
    """Store several answers like `keep_completion`, in about the time of one."""
    found = [extract(completion.text) for completion in completions]
    candidates = [
        None
        if said.source is None
        else Candidate(problem_id=completion.problem_id, source=said.source)
        for completion, said in zip(completions, found, strict=True)
    ]
    if completions:
        reasons = [said.reason for said in found]
        ledger.add_completions(list(zip(completions, candidates, reasons, strict=True)))
    return candidates
