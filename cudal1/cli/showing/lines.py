"""Puts what was gathered of a candidate or problem into lines of a terminal or a log.

Threat: sources, reasons and opinions are others' words. Nothing is read as markup, and characters
that cannot be seen are shown by their code points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from cudal1.cli.options.settings import Settings
from cudal1.cli.showing.candidate import Answer, Judged, ShownCandidate
from cudal1.cli.showing.problem import Place, ShownProblem
from cudal1.cli.showing.timing import histogram, sparkline
from cudal1.cli.terminal.answer import answer_console
from cudal1.cli.verdicts.show import WORDS, Row, show, verdict_rows
from cudal1.files.python_file import as_read, visible
from cudal1.problem import DeviceClass
from cudal1.program.technique import MEANINGS, Technique
from cudal1.verdict import Verdict

NUM_ANSWERS = 5
"""Answers that held a candidate that are named."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
"""Styles of lines of a difference, by their first character."""


def show_candidate(shown: ShownCandidate) -> None:
    """Print a candidate: what was found first, then its source and its differences."""
    console = answer_console(highlight=False, soft_wrap=True)
    show([*_about(shown), *_judgement_rows(shown.verdicts), *_lineage(shown), *_said(shown)])
    _print(console, f"source of {shown.candidate_id}", _source_lines(shown.source))
    for each in shown.differences:
        title = f"from {each.other} to {shown.candidate_id}"
        _print(console, title, each.lines or ["(the same lines)"], is_difference=True)


def show_problem(shown: ShownProblem) -> None:
    """Print a problem: its admission, its best candidates and their curve, then its reference."""
    console = answer_console(highlight=False, soft_wrap=True)
    rows = [
        Row("problem", f"{shown.problem_id}  {shown.key}", "bold"),
        Row("split", f"{shown.split}, in the sizes of {shown.device_class}, of {shown.revision}"),
        Row("admission", "admitted" if shown.admitted else f"rejected: {shown.rejection}"),
        Row("inputs", _invariants(shown)),
    ]
    if shown.num_mutants:
        missed = f"; not noticed: {', '.join(shown.survivors)}" if shown.survivors else ""
        noticed = shown.num_mutants - len(shown.survivors)
        rows.append(Row("check", f"notices {noticed} of {shown.num_mutants} wrong outputs{missed}"))
    for place in shown.places:
        rows += _place_rows(place)
    if not shown.places:
        rows.append(Row("verdicts", "none yet"))
    show(rows)
    _print(console, f"reference of {shown.key}", _source_lines(shown.source))


def _about(shown: ShownCandidate) -> list[Row]:
    problem = shown.problem or "a problem that the ledger does not know"
    rows = [
        Row("candidate", shown.candidate_id, "bold"),
        Row("problem", f"{shown.problem_id}  {problem}"),
    ]
    if shown.techniques is None:
        return [*rows, Row("techniques", "not told: the ledger does not know the problem")]
    for each in shown.techniques or ("none",):
        meaning = MEANINGS[Technique(each)] if each in set(Technique) else "none was read"
        rows.append(Row("technique", f"{each}: {meaning}" if shown.techniques else meaning))
    return rows


def _judgement_rows(verdicts: Sequence[Judged]) -> list[Row]:
    """Return the rows of all verdicts, the latest first."""
    rows: list[Row] = []
    for each in verdicts:
        rows += _verdict_rows(each)
        if each.quads:
            rows.append(Row("in order", f"{sparkline(each.quads)}  {len(each.quads)} quads"))
            rows += [Row("quads", f"{span}  {bar}") for span, bar in histogram(each.quads)]
    return rows or [Row("verdict", "NOT JUDGED")]


def _verdict_rows(judged: Judged) -> list[Row]:
    verdict, protocol = judged.verdict, judged.protocol
    if protocol is None:
        return _without_protocol(verdict)
    device = DeviceClass.CPU if verdict.device_kind == "cpu" else DeviceClass.CUDA
    settings = Settings(device, protocol, name="", max_reference_ms=0.0)
    when = Row("judged at", verdict.judged_at)
    return [*verdict_rows(verdict, settings), when]


def _without_protocol(verdict: Verdict) -> list[Row]:
    """Return what can be said of a verdict under a protocol that this code cannot read."""
    measured = verdict.measurement
    gain = "" if measured is None else f", certified {measured.certified:.2f}x"
    rows = [Row("verdict", f"{WORDS[verdict.status]}{gain}", "bold")]
    if verdict.reason is not None:
        rows.append(Row("because", verdict.reason))
    on = f"{verdict.device_kind}, protocol {verdict.protocol_id}, of another version of cudal1"
    return [*rows, Row("judged on", on), Row("judged at", verdict.judged_at)]


def _lineage(shown: ShownCandidate) -> list[Row]:
    rows = [Row("author", _answer(each)) for each in shown.answers[:NUM_ANSWERS]]
    if more := len(shown.answers) - len(rows):
        rows.append(Row("author", f"and {more} more answers"))
    if not shown.answers:
        rows.append(Row("author", "no answer holds it: a reference or a baseline"))
    if shown.generations:
        counts = ", ".join(map(str, shown.generations))
        rows.append(Row("ancestors", f"{counts} by exemplars, one generation after the other"))
    if shown.used_by:
        rows.append(Row("used by", ", ".join(shown.used_by)))
    return rows


def _answer(answer: Answer) -> str:
    said = f"{answer.provider} in {answer.stage}, attempt {answer.attempt}"
    if answer.turn is not None and answer.turn > 1:
        said += f", turn {answer.turn} after {answer.predecessor or 'an answer without source'}"
    if answer.exemplar_ids:
        scores = [f" ({score:.2f}x)" for score in answer.exemplar_scores]
        scores += [""] * (len(answer.exemplar_ids) - len(scores))
        shown = (f"{i}{score}" for i, score in zip(answer.exemplar_ids, scores, strict=False))
        said += f"; its prompt showed {', '.join(shown)}"
    return said


def _said(shown: ShownCandidate) -> list[Row]:
    rows: list[Row] = []
    for each in shown.said:
        words = "a cheat" if each.is_cheat else "no cheat"
        quoted = f" — {each.quote.strip()}" if each.quote else ""
        line = f"{words}, {each.kind}: {each.evidence}{quoted}"
        rows.append(Row(each.seen_by, line, "red" if each.is_cheat else ""))
    return rows


def _invariants(shown: ShownProblem) -> str:
    if shown.invariants is None:
        return "not examined"
    return "; ".join(shown.invariants) or "no fact holds in every draw"


def _place_rows(place: Place) -> list[Row]:
    rows = [
        Row(
            "verdicts",
            f"{place.num_judged} on {place.device_kind}, protocol {place.protocol_id}: "
            f"{place.num_correct} correct, {place.num_faster} certified above 1.01",
            "bold",
        )
    ]
    for each in place.best:
        by = f" by {', '.join(each.authors)}" if each.authors else ", no answer holds it"
        tags = f"; {', '.join(each.techniques)}" if each.techniques else ""
        rows.append(Row("best", f"{each.candidate_id}  {each.certified:.2f}x{by}{tags}"))
    if place.rises:
        curve = sparkline([each.certified for each in place.rises])
        rows.append(Row("so far", f"{curve}  best so far, a column for each rise"))
    rows += [
        Row("rise", f"{each.certified:.2f}x at verdict {each.num_judged}, {each.candidate_id}")
        for each in place.rises
    ]
    return rows


def _source_lines(source: str) -> list[str]:
    return visible(as_read(source), kept="\n\t").rstrip("\n").split("\n")


def _print(
    console: Console, title: str, lines: Iterable[str], *, is_difference: bool = False
) -> None:
    """Print lines below a title, with colours in a terminal only."""
    console.print()
    console.print(Text(title, "dim"))
    for line in lines:
        style = _STYLES.get(line[:1], "") if is_difference else ""
        console.print(Text(line, style))
