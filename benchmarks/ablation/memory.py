"""Keep what was judged and tried in files of lines: safe against a kill, small to carry.

The pipeline's memory is the ledger. This experiment runs in pieces on machines that have neither
DuckDB nor Polars. So it keeps the two facts that it needs itself: the score of each source, and the
row and time at which it was found. A line that a kill has cut off is dropped when the file is
opened again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudal1.candidate import Candidate
from cudal1.record import Record
from cudal1.selection.exemplar import Birth, Exemplar


class Judged(Record):
    """The score of one source."""

    candidate_id: str
    problem_id: str
    source: str
    status: str
    """Status of the verdict (`cudal1.verdict.Status`)."""
    score: float
    """Certified speedup; 0 without success."""
    seconds: float
    """Seconds that judging took."""


class Found(Record):
    """One answer of one row: a source, or none."""

    problem_id: str
    candidate_id: str | None
    score: float
    born: int | None
    """Training step or round of the exam; None means before the first."""
    island: int | None
    exemplar_ids: tuple[str, ...]
    """Candidates that its prompt showed, in their order."""
    num_tokens: int
    """Tokens of its prompt."""

    @property
    def is_copy(self) -> bool:
        """Return whether it is one of the sources that its prompt showed."""
        return self.candidate_id in self.exemplar_ids


class Lines:
    """A file of JSON lines that is only appended to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._mend()
        self._stream = path.open("a", encoding="utf-8")

    def _mend(self) -> None:
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                with self.path.open("r+b") as stream:
                    stream.truncate(whole)

    def add(self, value: Mapping[str, Any]) -> None:
        """Append a line; once this has returned, the line survives a kill of this process."""
        self._stream.write(json.dumps(value) + "\n")
        self._stream.flush()

    def __iter__(self) -> Iterator[Any]:
        for line in self.path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


class Memory:
    """Every judged source of the experiment: rows and seeds share it, so none is judged twice."""

    def __init__(self, state: Path) -> None:
        self._lines = Lines(state / "judged.jsonl")
        self._judged = {line["candidate_id"]: Judged(**line) for line in self._lines}
        self._record: dict[str, float] = {}
        for judged in self._judged.values():
            self._note(judged)

    def __len__(self) -> int:
        return len(self._judged)

    def find(self, candidate: Candidate) -> Judged | None:
        """Return the known score of a candidate."""
        return self._judged.get(candidate.id)

    def keep(self, judged: Judged) -> None:
        """Note the score of a new source."""
        self._lines.add(judged.model_dump())
        self._judged[judged.candidate_id] = judged
        self._note(judged)

    def record(self, problem_id: str) -> float | None:
        """Return the best score of a problem so far."""
        return self._record.get(problem_id)

    def shown(self, births: Sequence[Birth]) -> list[Exemplar]:
        """Return births as exemplars with their sources."""
        return [
            Exemplar(**birth.model_dump(), source=self._judged[birth.candidate_id].source)
            for birth in births
        ]

    def _note(self, judged: Judged) -> None:
        if judged.score > self._record.get(judged.problem_id, 0.0):
            self._record[judged.problem_id] = judged.score


class Diary:
    """The answers of one row, batch by batch; a repeated batch replaces the earlier one."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._batches: dict[str, list[Found]] = {
            line["batch"]: [Found(**found) for found in line["found"]] for line in self._lines
        }

    def __contains__(self, batch: str) -> bool:
        return batch in self._batches

    def add(self, batch: str, found: Sequence[Found]) -> None:
        """Note a batch of answers."""
        self._lines.add({"batch": batch, "found": [each.model_dump() for each in found]})
        self._batches[batch] = list(found)

    @property
    def batches(self) -> Mapping[str, Sequence[Found]]:
        """Return all batches by name."""
        return self._batches

    def births(self, problem_id: str) -> list[Birth]:
        """Return the successes of a problem."""
        return [
            Birth(
                candidate_id=each.candidate_id, score=each.score, born=each.born, island=each.island
            )
            for batch in self._batches.values()
            for each in batch
            if each.problem_id == problem_id and each.candidate_id is not None and each.score > 0
        ]
