"""The summary in Markdown: headline numbers and the main tables, for a README or a pull request."""

from __future__ import annotations

from cudal1.report import methods, speedups, tables, tallies
from cudal1.report.cost import cost_table
from cudal1.report.headline import headlines
from cudal1.report.inputs import ReportInput
from cudal1.report.second_opinions import second_opinion_table
from cudal1.report.table import markdown_text, table_markdown


def summary_markdown(given: ReportInput) -> str:
    """The whole summary; figures and sources are on the page only."""
    where = given.provenance
    origin = (
        f"Judged on {where.device_kind}, protocol {where.protocol.id}, revision "
        f"{where.git_revision}, written {where.generated_at}."
    )
    lines = [
        f"- **{markdown_text(f'{tile.label}: {tile.value}')}** ({markdown_text(tile.note)})"
        for tile in headlines(given)
    ]
    shown = (
        speedups.speedup_table, tables.null_table, tables.policy_table, methods.method_table,
        tallies.provider_table, tallies.outcome_table, tables.device_table, tallies.hack_table,
        second_opinion_table, cost_table,
    )  # fmt: skip
    return "\n".join([
        f"# {markdown_text(where.title)}", "", markdown_text(origin), "", *lines, "",
        *(table_markdown(build(given)) for build in shown),
    ])  # fmt: skip
