"""The summary in Markdown: findings, headline numbers, main tables, for a README or a request."""

from __future__ import annotations

from functools import partial

from cudal1.report.findings import findings
from cudal1.report.headline import headlines
from cudal1.report.inputs import ReportInput
from cudal1.report.tables import budget, devices, methods, speedups, tables, tallies
from cudal1.report.tables.cells import both
from cudal1.report.tables.cost import cost_table
from cudal1.report.tables.properties import property_table
from cudal1.report.tables.second_opinions import second_opinion_table
from cudal1.report.tables.table import markdown_text, table_markdown
from cudal1.report.words import terms


def summary_markdown(given: ReportInput) -> str:
    """Return the whole summary; figures and sources are on the page only."""
    where = given.provenance
    origin = (
        f"Judged on {where.device_kind}, protocol {where.protocol.id} ({terms(where.protocol)}), "
        f"revision {where.git_revision}, written {where.generated_at}."
    )
    lines = [
        f"- **{markdown_text(f'{tile.label}: {tile.value}')}** ({markdown_text(tile.note)})"
        for tile in headlines(given)
    ]
    shown = (
        *both(partial(speedups.speedup_table, given)),
        tables.null_table(given),
        tables.policy_table(given),
        budget.budget_table(given),
        methods.method_table(given),
        tallies.provider_table(given),
        tallies.outcome_table(given),
        property_table(given),
        *both(partial(devices.device_table, given)),
        tallies.hack_table(given),
        second_opinion_table(given),
        cost_table(given),
    )
    return "\n".join(
        [
            f"# {markdown_text(where.title)}",
            "",
            markdown_text(origin),
            "",
            "## What this run shows",
            "",
            *(f"{n}. {markdown_text(said)}" for n, said in enumerate(findings(given), 1)),
            "",
            *lines,
            "",
            *map(table_markdown, shown),
        ]
    )
