"""The HTML page: one file, no script, nothing from the network, light and dark, fit for a phone.

Every text that reaches the template is escaped there, candidates' sources above all. The only
markup passed through is our own: figures (escaped by the chart library) and the style sheet. A
content security policy in the page forbids scripts and requests as a second line.
"""

from __future__ import annotations

from functools import partial

from cudal1.record import Record
from cudal1.report.figures.bests import best_figures
from cudal1.report.figures.bursts import EXPLAINED, closest_figure
from cudal1.report.figures.curves import learning_figures, policy_figures
from cudal1.report.figures.figure import Figure
from cudal1.report.figures.figures import speedup_figure, spread_figure, success_speedup_figure
from cudal1.report.findings import findings
from cudal1.report.gallery import hack_gallery
from cudal1.report.headline import headlines
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_REJECTED
from cudal1.report.problems import problem_exhibits
from cudal1.report.seconds import seconds_figures, seconds_table
from cudal1.report.tables import baselines, budget, devices, methods, speedups, tables, tallies
from cudal1.report.tables.cells import both
from cudal1.report.tables.cost import cost_table
from cudal1.report.tables.properties import property_table
from cudal1.report.tables.second_opinions import second_opinion_table
from cudal1.report.tables.table import Table
from cudal1.report.tables.techniques import technique_table
from cudal1.report.templates import filled
from cudal1.report.words import terms

TEMPLATE = "page.html.j2"


class Section(Record):
    """A chapter of the page."""

    name: str
    """Slug of the section."""
    title: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    nothing_yet: str | None = None
    """Text in place of the figures, if there are none."""


def page_html(given: ReportInput) -> str:
    """Return the whole page."""
    where = given.provenance
    rejected = given.problems.filter(~given.problems["admitted"]).sort("suite", "level", "number")
    return filled(
        TEMPLATE,
        provenance=where,
        findings=findings(given),
        headlines=headlines(given),
        device={"kind": where.device_kind, **where.device},
        versions={"git revision": where.git_revision, **where.versions},
        sections=_sections(given),
        gallery=hack_gallery(given),
        problems=problem_exhibits(given),
        rejected=rejected.head(NUM_REJECTED).to_dicts(),
        num_rejected=rejected.height,
        explained=EXPLAINED,
        terms=terms(where.protocol),
    )


def _sections(given: ReportInput) -> list[Section]:
    return [
        Section(
            name="speedups",
            title="Speedups",
            tables=(
                *both(partial(speedups.speedup_table, given)),
                *_baselines(given),
                tables.null_table(given),
            ),
            figures=_drawn(speedup_figure(given), success_speedup_figure(given)),
            nothing_yet="No figure yet: no candidate succeeded.",
        ),
        Section(name="techniques", title="Techniques", tables=(technique_table(given),)),
        Section(
            name="policies",
            title="Policies",
            tables=(tables.policy_table(given),),
            figures=_drawn(*policy_figures(given)),
            nothing_yet="No figure yet: no held-out answers.",
        ),
        Section(
            name="methods",
            title="Methods",
            tables=(budget.budget_table(given), methods.method_table(given)),
        ),
        Section(
            name="learning",
            title="Learning curves",
            tables=_timed(given),
            figures=_drawn(*learning_figures(given), *best_figures(given), *seconds_figures(given)),
            nothing_yet="Nothing yet: no training stage has logged a step.",
        ),
        Section(
            name="answers",
            title="Answers",
            tables=(
                tallies.provider_table(given),
                tallies.outcome_table(given),
                property_table(given),
            ),
        ),
        Section(name="devices", title="Devices", tables=both(partial(devices.device_table, given))),
        Section(
            name="reliability",
            title="Reliability",
            tables=(tallies.reliability_table(given), tallies.precision_table(given)),
            figures=_drawn(closest_figure(given), spread_figure(given)),
            nothing_yet="No figure yet: nothing was timed.",
        ),
        Section(name="cost", title="Cost", tables=(cost_table(given),)),
        Section(
            name="hacks",
            title="Hacks",
            tables=(tallies.hack_table(given), second_opinion_table(given)),
        ),
    ]


def _baselines(given: ReportInput) -> tuple[Table, ...]:
    """Return table 4 over other ways of running the reference, where any was judged."""
    if given.baselines.is_empty():
        return ()
    return *both(partial(baselines.over_baselines, given)), baselines.baseline_table(given)


def _timed(given: ReportInput) -> tuple[Table, ...]:
    """Return the table of where time goes, if any stage has logged it."""
    table = seconds_table(given)
    return (table,) if table.rows else ()


def _drawn(*figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if figure is not None)
