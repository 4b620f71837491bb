"""Records as rows of tables, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cudal1.baseline import Baseline
from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.extract.sections import sections_of
from cudal1.hack_case import HackCase
from cudal1.kill_table import KillTable
from cudal1.measurement import TimingSample
from cudal1.problem import Admission, Problem
from cudal1.program.identity import program_id
from cudal1.program.techniques import techniques
from cudal1.protocol import EvalProtocol
from cudal1.review import Opinion, Review, Ruling
from cudal1.verdict import Phases, Properties, Verdict

_MEASURED = (
    "baseline",
    "speedup",
    "certified",
    "alpha",
    "lower",
    "upper",
    "doubt",
    "num_quads",
    "bucket_variance",
    "is_stable",
    "is_confirmed",
    "confirmed_on",
    "reference_us",
    "candidate_us",
    "floor_us",
)
_COMPARED = (
    "num_inputs",
    "stage",
    "precision",
    "max_relative_l2",
    "max_scaled_error",
    "first_mismatch",
)


@dataclass(frozen=True)
class Batch:
    """Rows of one table that were appended together."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    keys: tuple[str, ...] = ()
    """Natural keys by which the stage remembers the rows. Flags and samples belong to their
    verdict, and rows that carry their stage have none."""


def verdict_key(candidate_id: str, device_kind: str, protocol_id: str) -> str:
    """Return the natural key of a verdict as one text."""
    return f"{candidate_id}/{device_kind}/{protocol_id}"


def now() -> str:
    """Return the time, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def batch_of_run(values: Mapping[str, Any]) -> Batch:
    """Return the row of a stage's run, which no shard holds."""
    return Batch("runs", tuple(values), (tuple(values.values()),))


def batch_of_problem(problem: Problem, admission: Admission) -> Batch:
    """Return the problem's row."""
    values = {
        "problem_id": problem.id,
        **problem.model_dump(mode="json"),
        "admitted": admission.admitted,
        "rejection": admission.reason,
        "invariants": list(admission.invariants),
    }
    return _single("problems", values, problem.id)


def batch_of_mutants(table: KillTable) -> Batch:
    """Return a row for each mutant; they come with their problem."""
    rows = tuple(
        (table.problem_id, m.name, m.killed, m.family, m.num_inputs, table.precision.value)
        for m in table.mutants
    )
    return Batch("mutants", _MUTANT_COLUMNS, rows)


def batch_of_protocol(protocol: EvalProtocol) -> Batch:
    """Return the protocol's row."""
    values = {"protocol_id": protocol.id, "content": protocol.model_dump_json()}
    return _single("protocols", values, protocol.id)


def batch_of_try(attempt: Try) -> Batch:
    """Return the row of a try."""
    values = attempt.model_dump(mode="json")
    values["said"] = None if attempt.said is None else _column_text(attempt.said)
    return _single("tries", values, f"{attempt.request_id}/{attempt.sent_at}")


def batch_of_review(review: Review) -> Batch:
    """Return the review's row."""
    values = {
        "review_id": review.completion.id,
        "candidate_id": review.candidate_id,
        "code_id": review.code_id,
        "reviewer_id": review.reviewer_id,
        "trigger": review.trigger,
        "case_ids": list(review.case_ids),
        **{name: getattr(review.completion, name) for name in _ANSWER_COLUMNS},
        "finish_reason": _column_text(review.completion.finish_reason),
        **_texts_of(review.completion),
        **{name: getattr(review.opinion, name, None) for name in _OPINION_COLUMNS},
    }
    return _single("reviews", values, review.completion.id)


def batch_of_ruling(ruling: Ruling) -> Batch:
    """Return the ruling's row."""
    return _single("rulings", ruling.model_dump(mode="json"), ruling.candidate_id)


def batch_of_case(case: HackCase) -> Batch:
    """Return the case's row."""
    values = {
        "case_id": case.id,
        "kind": case.kind,
        "source": _bytes(case.source),
        "evidence": case.evidence,
        "origin": case.origin.value,
    }
    return _single("hack_cases", values, case.id)


def batch_of_completion(
    completion: Completion, candidate: Candidate | None, reason: str | None
) -> Batch:
    """Return the answer's row, with the candidate found in it."""
    values = {
        "completion_id": completion.id,
        **{name: getattr(completion, name) for name in _COMPLETION_COLUMNS},
        "finish_reason": _column_text(completion.finish_reason),
        "exemplar_ids": list(completion.exemplar_ids),
        "exemplar_scores": list(completion.exemplar_scores),
        "turn": completion.turn,
        **_texts_of(completion),
        **_sections(completion.text),
        "candidate_id": None if candidate is None else candidate.id,
        "no_candidate_reason": None if reason is None else _column_text(reason),
    }
    return _single("completions", values, completion.id)


def batch_of_candidate(candidate: Candidate, reference: str | None) -> Batch:
    """Return the candidate's row; without the source of its reference it has no techniques."""
    found = None if reference is None else techniques(candidate.source, reference)
    values = {
        "candidate_id": candidate.id,
        "problem_id": candidate.problem_id,
        "source": _bytes(candidate.source),
        "program_id": program_id(candidate.source),
        "techniques": None if found is None else [each.value for each in found],
    }
    return _single("candidates", values, candidate.id)


def batch_of_baseline(candidate: Candidate, baseline: Baseline) -> Batch:
    """Return the row that says which baseline a candidate is."""
    values = {
        "candidate_id": candidate.id,
        "problem_id": candidate.problem_id,
        "baseline": baseline.value,
    }
    return _single("baselines", values, candidate.id)


def batches_of_verdict(verdict: Verdict, samples: Sequence[TimingSample]) -> list[Batch]:
    """Return the rows of the verdict, its flags and its samples."""
    named = (verdict.candidate_id, verdict.device_kind, verdict.protocol_id)
    measured, compared = verdict.measurement, verdict.correctness
    medians = None if measured is None else list(measured.bucket_medians)
    values: dict[str, Any] = {
        **dict(zip(_VERDICT_KEY, named, strict=True)),
        "problem_id": verdict.problem_id,
        "device_id": verdict.device_id,
        "status": verdict.status.value,
        "reason": None if verdict.reason is None else _column_text(verdict.reason),
        **{part: _plain(getattr(measured, part, None)) for part in _MEASURED},
        "bucket_medians": medians,
        **{_correctness_column(part): _plain(getattr(compared, part, None)) for part in _COMPARED},
        **{name: getattr(verdict.properties, name, None) for name in Properties.model_fields},
        **{name: getattr(verdict.phases, name, None) for name in Phases.model_fields},
        "second_opinion": verdict.second_opinion.value,
        "sandbox": list(verdict.sandbox),
        "judge_s": verdict.judge_s,
        "judged_at": verdict.judged_at,
        # ASCII, so that a lone surrogate in a candidate's message goes in and comes out
        "content": json.dumps(verdict.model_dump(mode="python")),
    }
    batches: list[Batch] = []
    if samples:  # before their verdict: a verdict that is there already has its samples
        rows = tuple(
            (*named, s.session, s.quad, s.position, s.role.value, s.num_calls, s.burst_us, s.net_us)
            for s in samples
        )
        batches.append(Batch("timing_samples", (*_VERDICT_KEY, *_SAMPLE_COLUMNS), rows))
    batches.append(_single("verdicts", values, verdict_key(*named)))
    flags = {
        (flag.kind, flag.source.value): (
            *named,
            _column_text(flag.kind),
            flag.source.value,
            _column_text(flag.evidence),
        )
        for flag in verdict.flags
    }
    if flags:
        columns = (*_VERDICT_KEY, "kind", "source", "evidence")
        batches.append(Batch("hack_flags", columns, tuple(flags.values())))
    return batches


def batch_of_rewards(stage: str, step: int, earned: Iterable[tuple[str, float, float]]) -> Batch:
    """Return the rewards of one step's answers."""
    rows = tuple((stage, step, *row) for row in earned)
    return Batch("rewards", ("stage", "step", "completion_id", "raw", "smoothed"), rows)


def batch_of_steps(stage: str, step: int, values: Mapping[str, float]) -> Batch:
    """Return the numbers of one training step."""
    rows = tuple((stage, step, name, float(value)) for name, value in values.items())
    return Batch("training_steps", ("stage", "step", "name", "value"), rows)


def completion_of(row: Mapping[str, Any]) -> Completion:
    """Return the completion that a row of `completions` holds."""
    return Completion(
        id=row["completion_id"],
        exemplar_ids=tuple(row["exemplar_ids"]),
        exemplar_scores=tuple(row["exemplar_scores"] or ()),
        turn=row["turn"] or 1,
        **_texts_in(row),
        **{name: row[name] for name in _COMPLETION_COLUMNS},
    )


def review_of(row: Mapping[str, Any]) -> Review:
    """Return the review that a row of `reviews` holds."""
    completion = Completion(
        id=row["review_id"], **_texts_in(row), **{name: row[name] for name in _ANSWER_COLUMNS}
    )
    said = {name: row[name] for name in _OPINION_COLUMNS}
    return Review(
        completion=completion,
        candidate_id=row["candidate_id"],
        code_id=row["code_id"],
        reviewer_id=row["reviewer_id"],
        trigger=row["trigger"],
        case_ids=tuple(row["case_ids"]),
        opinion=None if row["is_cheat"] is None else Opinion(**said),
    )


def case_of(row: Mapping[str, Any]) -> HackCase:
    """Return the case that a row of `cases` holds."""
    return HackCase(
        kind=row["kind"],
        source=text_of(row["source"]),
        evidence=row["evidence"],
        origin=row["origin"],
        candidate_id=row["candidate_id"],
    )


def ruling_of(row: Mapping[str, Any]) -> Ruling:
    """Return the ruling that a row of `rulings` holds."""
    return Ruling(**{name: row[name] for name in Ruling.model_fields})


def verdict_of(content: str) -> Verdict:
    """Return the verdict that a `content` column holds."""
    return Verdict.model_validate(json.loads(content))


def text_of(stored: bytes | str) -> str:
    """Return the text that a blob column of a table holds, or a column of a view, which is text."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


_VERDICT_KEY = ("candidate_id", "device_kind", "protocol_id")
_SAMPLE_COLUMNS = ("session", "quad", "position", "role", "num_calls", "burst_us", "net_us")
_MUTANT_COLUMNS = ("problem_id", "mutant", "killed", "family", "num_inputs", "precision")
_ANSWER_COLUMNS = (
    "stage",
    "provider",
    "problem_id",
    "prompt_id",
    "template_id",
    "attempt",
    "finish_reason",
    "num_prompt_tokens",
    "num_completion_tokens",
    "num_reasoning_tokens",
    "cost_usd",
)
_COMPLETION_COLUMNS = (*_ANSWER_COLUMNS, "island", "follows")
_OPINION_COLUMNS = ("is_cheat", "kind", "quote", "evidence")


def _sections(text: str) -> dict[str, str | None]:
    found = sections_of(text)
    return {
        name: None if said is None else _column_text(said)
        for name, said in (("analysis", found.analysis), ("design", found.design))
    }


def _texts_of(completion: Completion) -> dict[str, bytes | None]:
    response = completion.response
    return {
        "answer": _bytes(completion.text),
        "reasoning": _bytes(completion.reasoning),
        "response": None if response is None else _bytes(response),
    }


def _texts_in(row: Mapping[str, Any]) -> dict[str, Any]:
    response = row["response"]
    return {
        "text": text_of(row["answer"]),
        "reasoning": text_of(row["reasoning"]),
        "response": None if response is None else text_of(response),
    }


def _correctness_column(part: str) -> str:
    return (
        "correctness_stage" if part == "stage" else part
    )  # a stage is DVC's in every other column


def _single(table: str, values: Mapping[str, Any], key: str) -> Batch:
    return Batch(table, tuple(values), (tuple(values.values()),), (key,))


def _bytes(text: str) -> bytes:
    """Return any text as bytes: answers may hold lone surrogates, which no text column takes."""
    return text.encode("utf-8", "surrogatepass")


def _column_text(text: str) -> str:
    """Return the text with lone surrogates escaped, for a column that people read."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: object) -> object:
    """Return an enumeration as its text, and other values unchanged."""
    return _column_text(value) if isinstance(value, str) else value
