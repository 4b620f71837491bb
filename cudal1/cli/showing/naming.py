"""Finds the candidate or the problem that a person names: by id, beginning of an id, or name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger

MIN_PREFIX = 4
"""Fewest characters of an id that may stand for it, where no other id begins with them."""
NUM_NAMED = 5
"""Number of ids that a message names."""
_KEY = re.compile(r"(?:(?P<suite>[\w-]+)/)?(?:L|level)?(?P<level>\d+)/(?P<number>\d+)(?:_\w*)?")
"""Pattern of a problem's key, such as `cudal1/L2/07_name`, `level2/7_name` or `2/7`."""


@dataclass(frozen=True)
class Named:
    """A candidate or a problem, by its id."""

    is_problem: bool
    id: str


def find(ledger: Ledger, said: str) -> Named:
    """Return what a person means.

    A problem's name or key comes first, then whole ids, then beginnings of ids.

    Raises:
        ConfigError: there is nothing of the kind, or several; the message has what comes nearest.
    """
    found = _problems(ledger, said)
    prefix = said.lower()
    if not found:
        found = _by_id(ledger, prefix, is_whole=True) or (
            _by_id(ledger, prefix, is_whole=False) if len(prefix) >= MIN_PREFIX else []
        )
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(each.id for each in found[:NUM_NAMED])
        more = ", …" if len(found) > NUM_NAMED else ""
        kinds = sorted({"problems" if each.is_problem else "candidates" for each in found})
        raise ConfigError(
            f"{said}: stands for several {' and '.join(kinds)}: {names}{more}; "
            "give more of the one that you mean"
        )
    if len(prefix) < MIN_PREFIX and re.fullmatch(r"[0-9a-f]*", prefix):
        raise ConfigError(f"{said}: give {MIN_PREFIX} characters of an id at least")
    raise ConfigError(
        f"{said}: no candidate or problem of that id or name here{_nearest(ledger, prefix)}"
    )


def _problems(ledger: Ledger, said: str) -> list[Named]:
    """Return problems of a name or key; of several versions, the suite's present one."""
    key = _KEY.fullmatch(said)
    if key is not None:
        condition = "level = $level and number = $number and suite = coalesce($suite, suite)"
        given = {
            "suite": key["suite"],
            "level": min(int(key["level"][:9]), 10**6),
            "number": min(int(key["number"][:9]), 10**6),
        }
    else:
        condition, given = "lower(name) = lower($name)", {"name": said}
    rows = ledger.sql(
        "select problem_id, exists (select 1 from members m where m.stage = 'problems' "
        "and m.kind = 'problems' and m.key = p.problem_id) as is_present "
        f"from problems p where {condition} order by suite, level, number, problem_id",
        given,
    ).to_dicts()
    present = [row for row in rows if row["is_present"]] or rows
    return [Named(is_problem=True, id=row["problem_id"]) for row in present]


def _by_id(ledger: Ledger, prefix: str, *, is_whole: bool) -> list[Named]:
    matches = "{0} = $prefix" if is_whole else "starts_with({0}, $prefix)"
    rows = ledger.sql(
        f"select true as is_problem, problem_id as id from problems "
        f"where {matches.format('problem_id')} union all "
        f"select false, candidate_id from candidates where {matches.format('candidate_id')} "
        f"order by 2, 1 limit {NUM_NAMED + 1}",
        {"prefix": prefix},
    ).to_dicts()
    return [Named(**row) for row in rows]


def _nearest(ledger: Ledger, said: str) -> str:
    """Return the ids and names that are spelled most alike, as the end of a message."""
    rows = ledger.sql(
        "select name from ("
        "select distinct name, levenshtein(lower(name), $said) as distance from problems union all "
        "select candidate_id, levenshtein(candidate_id[:len($said)], $said) from candidates"
        ") order by distance, name limit 3",
        {"said": said[:100]},
    )["name"].to_list()
    return f"; nearest: {', '.join(rows)}" if rows else "; the ledger has none yet"
