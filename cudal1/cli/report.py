"""`cudal1 report`: tables like the paper's, from verdicts of any run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudal1.cli.options.settings import ParamsOption, ProtocolOption, named_protocol, note_unread
from cudal1.cli.options.suites import NAMES, SizesOption, load_named
from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail, say
from cudal1.errors import ConfigError, CudaL1Error

if TYPE_CHECKING:
    from cudal1.cli.verdicts.report_input import Group
    from cudal1.report.tables.table import Table


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Verdicts that judge --candidates has written"),
    ],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help=f"{NAMES}: its problems without a verdict count as failed",
        ),
    ] = None,
    sizes: SizesOption = None,
    params: ParamsOption = None,
    protocol: ProtocolOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The tables, for machines")] = False,
) -> None:
    """Sum verdicts up, in Markdown: speedups by level, null test, outcomes, precision, cheats.

    Each kind of device and each protocol has tables of its own; several devices also one with a
    column each, of the candidates that all of them have judged.

    Example: cudal1 report --suite kernelbench:../KernelBench answers.verdicts.jsonl
    """
    from cudal1.cli.verdicts.report_input import read_groups

    try:
        if suite is None and sizes is not None:
            raise ConfigError("--sizes goes with --suite kernelbench:FOLDER")
        load = None if suite is None else partial(load_named, suite, sizes=sizes)
        groups, complaints = read_groups(files, load, named_protocol(params, protocol))
    except CudaL1Error as error:
        fail(str(error))
    for complaint in complaints:
        say(complaint)
    if complaints and params is None and protocol is None:
        note_unread()
    sections = [_section(group) for group in groups] + _across(groups)
    if as_json:
        answer_json(sections, indent=2)
        return
    from cudal1.report.tables.table import markdown_text, table_markdown

    for section in sections:
        answer(f"## {markdown_text(section['title'])}\n")
        for note in section["notes"]:
            answer(markdown_text(note) + "\n")
        for table in section["tables"]:
            answer(table_markdown(table))


def _section(group: Group) -> dict[str, Any]:
    """Return what is shown of one device under one protocol."""
    from cudal1.report.tables import baselines, speedups, tables, tallies
    from cudal1.report.tables.cells import both
    from cudal1.report.tables.properties import property_table

    shown: list[Table] = []
    if group.is_timed:
        given = group.given
        shown += both(partial(speedups.speedup_table, given))
        if not given.baselines.is_empty():
            shown += [
                *both(partial(baselines.over_baselines, given)),
                baselines.baseline_table(given),
            ]
        shown.append(tables.null_table(given))
    shown += [
        build(group.given)
        for build in (tallies.file_table, property_table, tallies.precision_table)
    ]
    if group.is_timed:
        shown.append(tallies.reliability_table(group.given))
    shown.append(tallies.hack_table(group.given))
    notes: list[str] = []
    if group.num_untimed:
        notes.append(f"{group.num_untimed} correct candidates were not timed and have no speedup.")
    return {
        "title": f"{group.suites} on {group.device_kind}, protocol {_called(group)}",
        "suites": group.suites,
        "device_kind": group.device_kind,
        "protocol": group.protocol_name,
        "protocol_id": group.protocol.id,
        "contract": group.protocol.contract,
        "mode": group.protocol.mode,
        "notes": notes,
        "tables": shown,
    }


def _across(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the devices side by side, for each protocol that several were judged under."""
    from cudal1.cli.verdicts.report_input import common
    from cudal1.report.tables.cells import both
    from cudal1.report.tables.devices import across_devices

    sections: list[dict[str, Any]] = []
    for called in dict.fromkeys(_called(group) for group in groups):
        alike = [group for group in groups if _called(group) == called and group.is_timed]
        if len(alike) > 1:
            sections.append(
                {
                    "title": f"All devices, protocol {called}",
                    "notes": [],
                    "tables": both(partial(across_devices, *common(alike))),
                }
            )
    return sections


def _called(group: Group) -> str:
    from cudal1.report.words import terms

    return f"{group.protocol_name} {group.protocol.id}, {terms(group.protocol)}"
