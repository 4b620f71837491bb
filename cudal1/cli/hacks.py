"""`cudal1 hacks`: the reviewer's vetoes, and a person's rulings on them.

Sources, and what was said of them, are a candidate's words: what could steer a terminal is escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.errors import CudaL1Error

if TYPE_CHECKING:
    from cudal1.candidate import Candidate
    from cudal1.ledger import Ledger
    from cudal1.review import Ruling

MIN_PREFIX = 6
"""Fewest characters of a candidate's id that name it, where no other id begins with them."""

Data = Annotated[Path, typer.Option(help="Where ledger and shards are")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines")]
Which = Annotated[str, typer.Argument(help="A candidate's id, or its first six characters or more")]

hacks = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What the reviewer has vetoed, and your word on it.",
)


@hacks.command("list")
def list_suspects(data: Data = Path("data"), as_json: AsJson = False) -> None:
    """List every candidate that the reviewer or a person called a cheat; the undecided ones first.

    Example: cudal1 hacks list
    """
    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as ledger:
            rows = ledger.query("suspects").to_dicts()
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json(rows)
        return
    if not rows:
        answer("no candidate has been called a cheat by the reviewer or a person")
    for row in rows:
        state = "waits for you" if row["ruled_at"] is None else "confirmed"
        speed = "" if row["certified"] is None else f", certified {row['certified']:.2f}x"
        answer(_shown(f"{row['candidate_id']}  {state}: {row['kind']} in {row['problem']}{speed}"))
        answer(_shown(f"    {row['seen_by']}: {row['evidence']}"))


@hacks.command()
def show(candidate: Which, data: Data = Path("data"), as_json: AsJson = False) -> None:
    """Show a candidate's source and everything that was said about it.

    Example: cudal1 hacks show 3f9a1c
    """
    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as ledger:
            found = _candidate(ledger, candidate)
            said = ledger.sql(
                "select 'reviewer' as seen_by, is_cheat, kind, evidence, quote, trigger "
                "from reviews where candidate_id = ? and is_cheat is not null union all "
                "select 'person', is_cheat, kind, evidence, '', '' from rulings "
                "where candidate_id = ?",
                [found.id, found.id],
            ).to_dicts()
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json(
            {
                "candidate_id": found.id,
                "problem_id": found.problem_id,
                "source": found.source,
                "said": said,
            }
        )
        return
    answer(_shown(found.source.rstrip(), lines=True))
    for row in said:
        words = "a cheat" if row["is_cheat"] else "no cheat"
        why = f" (asked because: {row['trigger']})" if row["trigger"] else ""
        answer()
        answer(_shown(f"{row['seen_by']}: {words}, {row['kind']}: {row['evidence']}{why}"))
        if row["quote"]:
            answer(_shown(f"    {row['quote'].strip()}"))


@hacks.command()
def confirm(
    candidate: Which,
    kind: Annotated[str | None, typer.Option(help="Its name, such as cached_output")] = None,
    evidence: Annotated[str | None, typer.Option(help="Why, in one line")] = None,
    data: Data = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Say that a candidate cheats: it counts for nothing, and the reviewer is shown it.

    Where the reviewer has vetoed it, the reviewer's words are taken unless you give others.

    Example: cudal1 hacks confirm 3f9a1c --kind cached_output --evidence "keeps y between calls"
    """

    def rule(ledger: Ledger, found: Candidate) -> Ruling:
        veto = ledger.veto(found)
        said_kind = kind or (veto.kind if veto else None)
        said_evidence = evidence or (veto.evidence if veto else None)
        if said_kind is None or said_evidence is None:
            fail(f"nobody has vetoed {found.id}: give --kind and --evidence")
        return _ruling(found, is_cheat=True, kind=said_kind, evidence=said_evidence)

    ruling = _decide(data, candidate, rule)
    said = f"{ruling.candidate_id} is a confirmed case of {ruling.kind}"
    _say_what_is_next(data, ruling, said, as_json=as_json)


@hacks.command()
def dismiss(
    candidate: Which,
    evidence: Annotated[str, typer.Option(help="Why it is none, in one line")] = "no cheat",
    data: Data = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Say that a candidate is honest: a veto of the reviewer does not hold against it.

    Example: cudal1 hacks dismiss 3f9a1c --evidence "the buffer is written anew on each call"
    """

    def rule(ledger: Ledger, found: Candidate) -> Ruling:
        if ledger.veto(found) is None:
            fail(f"nobody has vetoed {found.id}: there is nothing to dismiss")
        return _ruling(found, is_cheat=False, kind="none", evidence=evidence)

    ruling = _decide(data, candidate, rule)
    said = f"{ruling.candidate_id} is honest; its verdict counts again"
    _say_what_is_next(data, ruling, said, as_json=as_json)


def _decide(data: Path, prefix: str, rule: Callable[[Ledger, Candidate], Ruling]) -> Ruling:
    """Make a ruling and keep it; mistakes are found before anything is written."""
    from pydantic import ValidationError

    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as known:
            ruling = rule(known, _candidate(known, prefix))
        with Ledger.open(data) as ledger:
            ledger.begin_rulings()
            ledger.add_ruling(ruling)
            ledger.export()
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"--{'.'.join(map(str, first['loc']))}: {first['msg']}".replace("Value error, ", ""))
    except CudaL1Error as error:
        fail(str(error))
    return ruling


def _ruling(found: Candidate, *, is_cheat: bool, kind: str, evidence: str) -> Ruling:
    from cudal1.llm.reviewer.questions import code_id
    from cudal1.review import Ruling

    return Ruling(
        candidate_id=found.id,
        code_id=code_id(found.problem_id, found.source),
        is_cheat=is_cheat,
        kind=kind,
        evidence=evidence,
        ruled_at=datetime.now(UTC).isoformat(timespec="microseconds"),
    )


def _say_what_is_next(data: Path, ruling: Ruling, said: str, *, as_json: bool) -> None:
    """Print the stages that have used the candidate.

    What they made stays the same until they run again.
    """
    from cudal1.ledger import Ledger

    with Ledger.read(data) as ledger:
        used = ledger.query("used_by", candidate_id=ruling.candidate_id)["stage"].to_list()
    if as_json:
        answer_json({**ruling.model_dump(mode="json"), "used_by": used})
        return
    answer(said)
    if used:
        answer("to have it count in what was made with it:")
        answer(f"    dvc repro -f -s {' '.join(used)}")
        answer("    dvc repro")


def _shown(text: str, *, lines: bool = False) -> str:
    """Return the text with unprintable characters escaped; `lines` keeps line ends and tabs."""
    kept = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def _candidate(ledger: Ledger, prefix: str) -> Candidate:
    """Return the one candidate with an id that begins so, in letters of either case."""
    if len(prefix) < MIN_PREFIX:
        fail(f"{prefix}: give {MIN_PREFIX} characters of the candidate's id at least")
    found = ledger.candidates(prefix.lower())
    if not found:
        fail(f"{prefix}: no such candidate here; `cudal1 hacks list` names those under suspicion")
    if len(found) > 1:
        fail(f"{prefix}: several candidates begin so: {', '.join(each.id for each in found)}")
    return found[0]
