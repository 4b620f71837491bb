"""Shows a verdict to a person: a table in a terminal, plain lines elsewhere.

Threat: reasons, evidence and file names may hold what a candidate wrote, so nothing here is read as
markup, and nothing unprintable is printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudal1.cli.options.settings import Settings
from cudal1.cli.terminal.answer import answer_console
from cudal1.cli.terminal.ending import printable
from cudal1.cli.verdicts.certified import GATES, sentence, why_not_more
from cudal1.harness.shared.wire import LAYERS
from cudal1.measurement import Measurement
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Correctness, HackFlag, Properties, Status, Verdict

WORDS = {
    Status.NO_BUILD: "NOT BUILT",
    Status.CRASHED: "CRASHED",
    Status.TIMED_OUT: "TIMED OUT",
    Status.INCORRECT: "INCORRECT",
    Status.HACKED: "CHEATS",
    Status.INVALID: "FASTER THAN THE DEVICE CAN BE",
    Status.CORRECT: "CORRECT",
}


SHOWN_S = 0.05
"""Seconds under which a phase is not shown."""


@dataclass(frozen=True)
class Row:
    """One line of what is shown."""

    label: str
    text: str
    style: str = ""


def show(rows: list[Row], console: Console | None = None) -> None:
    """Print rows: aligned and wrapped in a terminal; elsewhere one line each, for grep."""
    console = console or answer_console(highlight=False)
    width = max(len(row.label) for row in rows)
    if not console.is_terminal:
        for row in rows:
            print(f"{row.label:<{width}}  {printable(row.text)}", file=console.file)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=width)
    table.add_column()
    for row in rows:
        table.add_row(Text(row.label, "dim"), Text(printable(row.text), row.style))
    console.print(table)


def verdict_rows(
    verdict: Verdict, settings: Settings, waited_s: Mapping[str, float] | None = None
) -> list[Row]:
    """Return the rows that show a verdict, the answer first.

    `waited_s` are the parts that the user has waited for, the verdict's own seconds in the last;
    without them these alone are shown.
    """
    rows = [Row("verdict", headline(verdict, settings.protocol), f"bold {style(verdict)}")]
    if verdict.reason is not None:
        rows.append(Row("because", verdict.reason))
    if verdict.measurement is not None:
        rows += _speed_rows(verdict.measurement, settings.protocol)
    rows += _correctness_rows(verdict.correctness, settings.protocol)
    rows += _property_rows(verdict.properties)
    rows += _flag_rows(verdict.flags)
    rows.append(
        Row("judged on", f"{verdict.device_kind}, protocol {settings.name} {verdict.protocol_id}")
    )
    rows.append(Row("sandbox", sandbox_line(verdict.sandbox)))
    rows.append(Row("took", took_line(verdict, waited_s or {"judging": verdict.judge_s})))
    return rows


def took_line(verdict: Verdict, waited_s: Mapping[str, float]) -> str:
    """Return the time that the user has waited, and its parts, the longest first.

    The last part is the verdict's. Its phases stand in its place, with what they leave over.
    """
    parts = dict(waited_s)
    if verdict.phases is not None and parts:
        last = list(parts)[-1]
        rest = parts.pop(last)
        for name, seconds in verdict.phases:
            part = name.removesuffix("_s")
            parts[part] = parts.get(part, 0.0) + seconds
            rest -= seconds
        parts[last] = max(0.0, rest)
    total = math.fsum(waited_s.values())
    spent = sorted(parts.items(), key=lambda each: each[1], reverse=True)
    said = [f"{seconds:.1f} s {part}" for part, seconds in spent if seconds >= SHOWN_S]
    return f"{total:.1f} s" + (f": {', '.join(said)}" if len(said) > 1 else "")


def sandbox_line(layers: tuple[str, ...]) -> str:
    """Return the number of layers that stood around the candidate, and the missing ones."""
    missing = [layer for layer in LAYERS if layer not in layers]
    said = [f"{len(LAYERS) - len(missing)} of {len(LAYERS)} layers"]
    if missing:
        said.append(f"without {', '.join(missing)}")
    said += [f"{mark.upper()}" for mark in layers if mark not in LAYERS]  # such as `unsafe`
    return "; ".join(said)


def headline(verdict: Verdict, protocol: EvalProtocol) -> str:
    """Return a verdict in a few words, with its certified speedup."""
    word, measurement = WORDS[verdict.status], verdict.measurement
    if verdict.status is not Status.CORRECT:
        return word
    if measurement is None:
        return f"{word}; nothing was timed"
    certified = measurement.certified
    if certified > 1:
        return f"{word} and certified {certified:.2f}x faster"
    if certified < 1:
        return f"{word} but slower: certified {certified:.2f}x"
    if measurement.doubt is not None:
        return f"{word}; no gain certified: {GATES[measurement.doubt].reason}"
    if measurement.alpha is None and not measurement.is_stable:
        return f"{word}; no gain: the times were too unsteady"
    if measurement.is_confirmed is False:
        return f"{word}; no gain: a second measurement disagreed"
    if why_not_more(measurement, protocol):
        return f"{word}; no gain certified"
    return f"{word}; no difference shown"


def style(verdict: Verdict) -> str:
    """Return the colour of a verdict: red for a failure, green for a gain."""
    if verdict.status is not Status.CORRECT:
        return "red"
    return "green" if verdict.measurement is None or verdict.measurement.certified > 1 else "yellow"


def _speed_rows(measurement: Measurement, protocol: EvalProtocol) -> list[Row]:
    m = measurement
    confirmed = {True: ", measured again in fresh processes", False: ", not confirmed", None: ""}
    return [
        Row("speedup", sentence(m, protocol)),
        Row(
            "compared",
            f"reference ({m.baseline}) {m.reference_us:.1f} us with candidate "
            f"{m.candidate_us:.1f} us a call, in {m.num_quads} quads or pairs of bursts "
            f"(at most {protocol.max_quads}){confirmed[m.is_confirmed]}",
        ),
        *floor_rows(m),
    ]


def floor_rows(measurement: Measurement) -> list[Row]:
    """Return the physical floor, where one is known."""
    if measurement.floor_us is None:
        return []
    light = measurement.speed_of_light
    known = light is not None and math.isfinite(light)
    share = f", {light:.0%} of the candidate's time" if known else ""
    return [Row("floor", f"no call takes less than {measurement.floor_us:.1f} us{share}")]


def _correctness_rows(found: Correctness | None, protocol: EvalProtocol) -> list[Row]:
    if found is None:
        return [Row("outputs", "none was compared")]
    stages = f"stage {found.stage} of {len(protocol.correctness_stages)} passed"
    met = "in no precision class" if found.precision is None else f"within {found.precision}"
    rows = [
        Row("outputs", f"{found.num_inputs} right, {met} (asked: {protocol.precision}); {stages}")
    ]
    if found.max_scaled_error is not None:
        relative = (
            ""
            if found.max_relative_l2 is None
            else (f"; relative L2 error {found.max_relative_l2:.1e}")
        )
        rows.append(
            Row("error", f"worst element {_of_tolerance(found.max_scaled_error)}{relative}")
        )
    return rows


def _property_rows(seen: Properties | None) -> list[Row]:
    """Return what was seen beyond the outputs, without what could not be told or says nothing."""
    if seen is None:
        return []
    return [Row("seen", "; ".join(seen.in_words))] if seen.in_words else []


def _of_tolerance(scaled_error: float) -> str:
    if scaled_error <= 1:
        return f"at {100 * scaled_error:.2g} % of its tolerance"
    return f"at {scaled_error:.3g} times its tolerance"


def _flag_rows(flags: tuple[HackFlag, ...]) -> list[Row]:
    deciding = [flag for flag in flags if not flag.is_advisory]
    advisory = [flag for flag in flags if flag.is_advisory]
    if not flags:
        return [Row("flags", "none")]
    return [
        *(Row("flag", f"{f.kind} ({f.source}): {f.evidence}", "red") for f in deciding),
        *(Row("note", f"{f.kind}, advisory: {f.evidence}", "yellow") for f in advisory),
    ]
