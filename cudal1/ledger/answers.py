"""Several answers as one batch a table: appending many together costs about as much as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cudal1.candidate import Candidate, Completion
from cudal1.ledger.rows import Batch, batch_of_candidate, batch_of_completion


def batches_of_completions(
    answers: Iterable[tuple[Completion, Candidate | None, str | None]],
    reference: Callable[[str], str | None],
) -> list[Batch]:
    """Return the rows of different answers and of their candidates, each candidate once.

    Args:
        answers: each answer with its candidate, or with the reason why there is none.
        reference: returns the source of a problem's reference.
    """
    completions: list[Batch] = []
    candidates: dict[str, Batch] = {}
    for completion, candidate, reason in answers:
        completions.append(batch_of_completion(completion, candidate, reason))
        if candidate is not None:
            candidates[candidate.id] = batch_of_candidate(
                candidate, reference(candidate.problem_id)
            )
    return [_joined(list(found)) for found in (completions, candidates.values()) if found]


def _joined(batches: list[Batch]) -> Batch:
    """Return batches of one table as one batch."""
    rows = tuple(row for batch in batches for row in batch.rows)
    keys = tuple(key for batch in batches for key in batch.keys)
    return Batch(batches[0].table, batches[0].columns, rows, keys)
