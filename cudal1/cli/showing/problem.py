"""Gathers what a ledger holds of a problem."""

from __future__ import annotations

from cudal1.ledger import Ledger
from cudal1.record import Record

NUM_BEST = 10
"""Candidates that are named under each protocol, on each kind of device."""


class Best(Record):
    """A candidate among the best."""

    candidate_id: str
    certified: float
    speedup: float
    authors: tuple[str, ...]
    techniques: tuple[str, ...] | None


class Rise(Record):
    """A verdict that raised the best certified speedup."""

    num_judged: int
    """Number of verdicts until then, this one included."""
    judged_at: str
    certified: float
    candidate_id: str


class Place(Record):
    """Verdicts on one kind of device under one protocol."""

    device_kind: str
    protocol_id: str
    num_judged: int
    num_correct: int
    num_faster: int
    """Candidates that are certified above 1.01."""
    best: tuple[Best, ...]
    rises: tuple[Rise, ...]
    """The curve of the best so far, in the order of the verdicts."""


class ShownProblem(Record):
    """All that is shown of a problem."""

    problem_id: str
    key: str
    split: str
    device_class: str
    revision: str
    admitted: bool
    rejection: str | None
    invariants: tuple[str, ...] | None
    """Facts that hold for its inputs in every draw; None: not examined."""
    survivors: tuple[str, ...]
    """Wrong outputs that its check does not notice."""
    num_mutants: int
    source: str
    places: tuple[Place, ...]
    """The place with the most verdicts first."""


def shown_problem(ledger: Ledger, problem_id: str) -> ShownProblem:
    """Return what a ledger holds of a problem of this id."""
    row = ledger.sql("select * from problems where problem_id = ?", [problem_id]).to_dicts()[0]
    mutants = ledger.sql(
        "select mutant, killed from mutants where problem_id = ? and killed is not null "
        "order by mutant",
        [problem_id],
    ).to_dicts()
    places = ledger.sql(
        "select device_kind, protocol_id, count(*) as num_judged, "
        "count(*) filter (status = 'correct') as num_correct, "
        "count(*) filter (status = 'correct' and certified > 1.01) as num_faster "
        "from judged where problem_id = ? group by all order by num_judged desc, 1, 2",
        [problem_id],
    ).to_dicts()
    return ShownProblem(
        problem_id=problem_id,
        key=f"{row['suite']}/L{row['level']}/{row['number']:02d}_{row['name']}",
        num_mutants=len(mutants),
        survivors=tuple(each["mutant"] for each in mutants if not each["killed"]),
        places=tuple(
            Place(
                **place,
                best=_best(ledger, problem_id, place["device_kind"], place["protocol_id"]),
                rises=_rises(ledger, problem_id, place["device_kind"], place["protocol_id"]),
            )
            for place in places
        ),
        **{
            name: row[name]
            for name in (
                "split",
                "device_class",
                "revision",
                "admitted",
                "rejection",
                "invariants",
                "source",
            )
        },
    )


def _best(ledger: Ledger, *place: str) -> tuple[Best, ...]:
    rows = ledger.sql(
        "select candidate_id, certified, speedup, any_value(techniques) as techniques, "
        "coalesce(list(distinct provider order by provider) filter (provider is not null), []) "
        "as authors "
        "from judged join candidates using (candidate_id, problem_id) "
        "left join completions using (candidate_id, problem_id) "
        "where problem_id = ? and device_kind = ? and protocol_id = ? and status = 'correct' "
        "and certified is not null group by all "
        f"order by certified desc, candidate_id limit {NUM_BEST}",
        list(place),
    ).to_dicts()
    return tuple(Best(**row) for row in rows)


def _rises(ledger: Ledger, *place: str) -> tuple[Rise, ...]:
    rows = ledger.sql(
        "with ordered as (select candidate_id, judged_at::varchar as judged_at, "
        "case when status = 'correct' then certified end as certified, "
        "row_number() over (order by judged_at, candidate_id) as num_judged "
        "from judged where problem_id = ? and device_kind = ? and protocol_id = ?) "
        "select * from ordered where certified is not null "
        "qualify certified > coalesce(max(certified) over (order by num_judged "
        "rows between unbounded preceding and 1 preceding), 0) order by num_judged",
        list(place),
    ).to_dicts()
    return tuple(Rise(**row) for row in rows)
