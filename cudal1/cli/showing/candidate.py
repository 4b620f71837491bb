"""Gathers what a ledger holds of a candidate."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cudal1.candidate import Candidate
from cudal1.cli.showing.differences import difference
from cudal1.cli.showing.timing import quad_speedups
from cudal1.ledger import Ledger
from cudal1.ledger.rows import text_of, verdict_of
from cudal1.program.techniques import techniques
from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.verdict import Verdict

MAX_EXEMPLARS = 4
"""Exemplars that a candidate is compared with."""


class Judged(Record):
    """A verdict on the candidate, vetoes applied, and its timing."""

    verdict: Verdict
    protocol: EvalProtocol | None
    """None where the ledger's protocol is of another version of cudal1."""
    quads: tuple[float, ...]
    """Speedup that each quad of the first measurement says, in time order."""


class Answer(Record):
    """An answer of a provider that held the candidate."""

    completion_id: str
    stage: str
    provider: str
    attempt: int
    turn: int | None
    """Number of the answer in its trajectory."""
    predecessor: str | None
    """Candidate in the answer before it in its trajectory."""
    exemplar_ids: tuple[str, ...]
    exemplar_scores: tuple[float, ...]


class Said(Record):
    """The opinion of the reviewer, or the ruling of a person."""

    seen_by: str
    is_cheat: bool
    kind: str
    evidence: str
    quote: str


class Difference(Record):
    """Lines by which the candidate differs from another source."""

    other: str
    """`reference`, or a candidate's id."""
    lines: tuple[str, ...]


class ShownCandidate(Record):
    """All that is shown of a candidate."""

    candidate_id: str
    problem_id: str
    problem: str | None
    """Key of the problem; None where the ledger does not know it."""
    source: str
    techniques: tuple[str, ...] | None
    """None where neither the ledger nor its problem tells."""
    verdicts: tuple[Judged, ...]
    """The latest first."""
    answers: tuple[Answer, ...]
    generations: tuple[int, ...]
    """Number of ancestors by exemplars, one generation after the other."""
    used_by: tuple[str, ...]
    """Stages that used it in their latest run."""
    said: tuple[Said, ...]
    differences: tuple[Difference, ...]


def shown_candidate(ledger: Ledger, candidate_id: str, *, exemplars: bool) -> ShownCandidate:
    """Return what a ledger holds of a candidate.

    Args:
        ledger: the ledger.
        candidate_id: an id that it has.
        exemplars: whether to compare the source with those of the exemplars, too.
    """
    row = _rows(ledger, "select * from candidates where candidate_id = ?", candidate_id)[0]
    candidate = Candidate(problem_id=row["problem_id"], source=text_of(row["source"]))
    problems = _rows(
        ledger,
        "select source, printf('%s/L%d/%02d_%s', suite, level, number, name) as key "
        "from problems where problem_id = ?",
        candidate.problem_id,
    )
    reference = problems[0]["source"] if problems else None
    named = row["techniques"]
    if named is None and reference is not None:
        named = [each.value for each in techniques(candidate.source, reference)]
    answers = _answers(ledger, candidate_id)
    return ShownCandidate(
        candidate_id=candidate_id,
        problem_id=candidate.problem_id,
        problem=problems[0]["key"] if problems else None,
        source=candidate.source,
        techniques=None if named is None else tuple(named),
        verdicts=tuple(_judged(ledger, candidate)),
        answers=answers,
        generations=_generations(ledger, candidate_id),
        used_by=tuple(ledger.query("used_by", candidate_id=candidate_id)["stage"].to_list()),
        said=_said(ledger, candidate_id),
        differences=tuple(_differences(ledger, candidate, reference, answers if exemplars else ())),
    )


def _rows(ledger: Ledger, query: str, *given: object) -> list[dict[str, Any]]:
    return ledger.sql(query, list(given)).to_dicts()


def _judged(ledger: Ledger, candidate: Candidate) -> list[Judged]:
    veto = ledger.veto(candidate)
    rows = _rows(
        ledger,
        "select v.content, p.content as protocol from verdicts v left join protocols p "
        "using (protocol_id) where candidate_id = ? order by judged_at desc, protocol_id",
        candidate.id,
    )
    found: list[Judged] = []
    for row in rows:
        verdict = verdict_of(row["content"])
        samples = ledger.query(
            "shown_samples",
            candidate_ids=[candidate.id],
            device_kind=verdict.device_kind,
            protocol_id=verdict.protocol_id,
        )
        found.append(
            Judged(
                verdict=verdict if veto is None else verdict.vetoed(veto),
                protocol=_protocol(row["protocol"]),
                quads=tuple(quad_speedups(samples.iter_rows(named=True))),
            )
        )
    return found


def _protocol(content: str | None) -> EvalProtocol | None:
    try:
        return None if content is None else EvalProtocol.model_validate_json(content)
    except ValidationError:
        return None


def _answers(ledger: Ledger, candidate_id: str) -> tuple[Answer, ...]:
    rows = _rows(
        ledger,
        "select c.completion_id, c.stage, c.provider, c.attempt, c.turn, c.exemplar_ids, "
        "coalesce(c.exemplar_scores, []) as exemplar_scores, b.candidate_id as predecessor "
        "from completions c left join completions b on b.completion_id = c.follows "
        "where c.candidate_id = ? order by c.stage, c.attempt, c.completion_id",
        candidate_id,
    )
    return tuple(Answer(**row) for row in rows)


def _generations(ledger: Ledger, candidate_id: str) -> tuple[int, ...]:
    rows = _rows(
        ledger,
        "select generation, count(*) as num from lineage(?) where generation > 0 "
        "group by generation order by generation",
        candidate_id,
    )
    return tuple(row["num"] for row in rows)


def _said(ledger: Ledger, candidate_id: str) -> tuple[Said, ...]:
    rows = _rows(
        ledger,
        "select 'reviewer' as seen_by, is_cheat, kind, evidence, coalesce(quote, '') as quote "
        "from reviews where candidate_id = ? and is_cheat is not null union all "
        "select 'person', is_cheat, kind, evidence, '' from words where candidate_id = ?",
        candidate_id,
        candidate_id,
    )
    return tuple(Said(**row) for row in rows)


def _differences(
    ledger: Ledger, candidate: Candidate, reference: str | None, answers: tuple[Answer, ...]
) -> list[Difference]:
    others = {} if reference is None else {"reference": reference}
    ids = dict.fromkeys(each for answer in answers for each in answer.exemplar_ids)
    rows = ledger.query("sources", candidate_ids=list(ids)[:MAX_EXEMPLARS]).to_dicts()
    others |= {row["candidate_id"]: row["source"] for row in rows}
    return [
        Difference(
            other=name, lines=tuple(difference(other, candidate.source, (name, candidate.id)))
        )
        for name, other in others.items()
    ]
