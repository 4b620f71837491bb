"""`cudal1 report`: tables like the paper's, of anybody's verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.ending import fail
from cudal1.cli.settings import ParamsOption, ProtocolOption
from cudal1.errors import ConfigError, CudaL1Error

if TYPE_CHECKING:
    from cudal1.report.table import Table


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
            help="shipped or kernelbench:FOLDER: its problems without a verdict count as failed",
        ),
    ] = None,
    params: ParamsOption = None,
    protocol: ProtocolOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The tables, for machines")] = False,
) -> None:
    """Sum verdicts up, in Markdown: speedups by level, null test, outcomes, precision, cheats.

    Files of several devices also give a column each, over the problems that all of them have; those
    of one device are counted together, and told apart where authors are.

    Example: cudal1 report --suite kernelbench:../KernelBench answers.verdicts.jsonl
    """
    try:
        if params is not None and protocol is not None:
            raise ConfigError("--params brings its own protocol: give either")
        sections = _sections(files, suite, params, protocol)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        shown = [
            {"title": title, "tables": [table.model_dump(mode="json") for table in tables]}
            for title, tables in sections
        ]
        typer.echo(json.dumps(shown, indent=2))
        return
    from cudal1.report.table import markdown_text, table_markdown

    for title, tables in sections:
        typer.echo(f"## {markdown_text(title)}\n")
        for table in tables:
            typer.echo(table_markdown(table))


def _sections(
    files: list[Path], suite: str | None, params: Path | None, protocol: str | None
) -> list[tuple[str, list[Table]]]:
    """Titles with their tables."""
    from cudal1 import protocols
    from cudal1.cli.report_input import best, read_inputs
    from cudal1.params import Params
    from cudal1.report import tables, tallies

    own = Params.load(params).protocol if params is not None else None
    own = protocols.load(protocol) if protocol is not None else own
    found = read_inputs(files, suite, own)
    sections: list[tuple[str, list[Table]]] = []
    for each in found:
        where = each.provenance
        title = f"{where.title} on {where.device_kind}, protocol {where.protocol.id}"
        builders = (
            tables.speedup_table, tables.null_table, tallies.provider_table, tallies.outcome_table,
            tallies.precision_table, tallies.reliability_table, tallies.hack_table,
        )  # fmt: skip
        sections.append((title, [build(each) for build in builders]))
    ids = {each.provenance.protocol.id for each in found}
    for protocol_id in sorted(ids):
        alike = [each for each in found if each.provenance.protocol.id == protocol_id]
        if len(alike) > 1:
            by_device = {each.provenance.device_kind: best(each) for each in alike}
            sections.append(
                (f"All devices, protocol {protocol_id}", [tables.across_devices(by_device)])
            )
    return sections
