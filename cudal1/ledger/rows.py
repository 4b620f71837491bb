"""Records as rows of tables, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudal1.candidate import Candidate, Completion
from cudal1.measurement import TimingSample
from cudal1.verdict import Verdict


@dataclass(frozen=True)
class Row:
    """One row of one table; a fact of the stage that is running."""

    table: str
    key: str
    """Natural key as one text."""
    values: Mapping[str, Any]

    @property
    def member_table(self) -> str:
        """Flags and samples belong to their verdict."""
        return "verdicts" if self.table in ("hack_flags", "timing_samples") else self.table


def text_bytes(text: str) -> bytes:
    """Any text as bytes: answers may hold lone surrogates, which no text column takes."""
    return text.encode("utf-8", "surrogatepass")


def rows_of_verdict(verdict: Verdict, samples: Sequence[TimingSample]) -> list[Row]:
    """The verdict's row, its flags' and its samples'."""
    named = {
        "candidate_id": verdict.candidate_id,
        "device_kind": verdict.device_kind,
        "protocol_id": verdict.protocol_id,
    }
    key = "/".join(named.values())
    measured = verdict.measurement
    parts = (
        "speedup", "certified", "num_quads", "bucket_variance", "is_stable", "is_confirmed",
        "reference_us", "candidate_us",
    )  # fmt: skip
    checked = verdict.correctness
    whole = Row("verdicts", key, {
        **named, "problem_id": verdict.problem_id, "status": verdict.status.value,
        "reason": verdict.reason,
        **{part: None if measured is None else getattr(measured, part) for part in parts},
        "num_inputs": None if checked is None else checked.num_inputs,
        "judge_s": verdict.judge_s, "judged_at": verdict.judged_at,
        "content": verdict.model_dump_json(),
    })  # fmt: skip
    flags = {
        (flag.kind, flag.source): Row("hack_flags", key, {**named, **flag.model_dump(mode="json")})
        for flag in verdict.flags
    }
    timed = [
        Row("timing_samples", key, {**named, **sample.model_dump(mode="json")})
        for sample in samples
    ]
    return [whole, *flags.values(), *timed]


def row_of_candidate(candidate: Candidate) -> Row:
    """The candidate's row."""
    return Row("candidates", candidate.id, {
        "candidate_id": candidate.id, "problem_id": candidate.problem_id,
        "source": text_bytes(candidate.source),
    })  # fmt: skip


def completion_of(row: Mapping[str, Any]) -> Completion:
    """The completion that a row of `completions` holds."""
    return Completion(
        id=row["completion_id"],
        text=row["answer"].decode("utf-8", "surrogatepass"),
        exemplar_ids=tuple(row["exemplar_ids"]),
        **{
            name: row[name]
            for name in (
                "stage", "provider", "problem_id", "prompt_id", "attempt", "finish_reason",
                "num_prompt_tokens", "num_completion_tokens", "cost_usd",
            )
        },
    )  # fmt: skip
