"""Shows what `cudal1 check` found: lines, Markdown for a job's summary, JUnit's XML.

Threat: reasons hold what a version wrote. They are escaped for each language, and characters that
are not printable are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from cudal1.cli.terminal.ending import printable
from cudal1.errors import ConfigError
from cudal1.report.tables.table import Row, Table, table_markdown
from cudal1.services.checking.finding import WORSE, Finding, State

COLUMNS = ("version", "problem", "device", "state", "what was found", "proven", "today", "finds")
MARKS = {
    State.FINE: "✅ fine",
    State.SLOWER: "❌ slower",
    State.WRONG: "❌ wrong",
    State.CHANGED: "❌ changed",
    State.ELSEWHERE: "not here",
    State.UNJUDGED: "⚠️ not judged",
}


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return a plain line for each finding, and one that counts them."""
    said: list[str] = []
    for finding in findings:
        line = f"{finding.state}: {finding.record}: {finding.problem}: {finding.reason}"
        if finding.state in (State.FINE, State.SLOWER) and finding.detects is not None:
            line += f"; finds slowdowns from {finding.detects:.1%} on"
        if finding.changed_versions:
            line += f"; since then: {', '.join(finding.changed_versions)}"
        said.append(printable(line))
    return [*said, _count(findings)]


def markdown(findings: Sequence[Finding]) -> str:
    """Return a table in GitHub's Markdown."""
    rows = [
        Row(
            cells=(
                finding.version,
                finding.problem,
                finding.device_kind,
                MARKS[finding.state],
                "; ".join((finding.reason, *finding.changed_versions)),
                f"{finding.proven:.3f}x",
                "" if finding.speedup is None else f"{finding.speedup:.3f}x",
                "" if finding.detects is None else f"{finding.detects:.1%}",
            )
        )
        for finding in findings
    ]
    table = Table(
        title="cudal1 check",
        caption=f"{_count(findings)}. “finds”: the least slowdown that is found in 19 of 20 cases.",
        columns=COLUMNS,
        num_text_columns=5,
        rows=tuple(rows),
        nothing_yet="no proofs",
    )
    return table_markdown(table)


def junit_xml(findings: Sequence[Finding]) -> str:
    """Return the findings as JUnit's XML: a test case for each proof."""
    suite = ElementTree.Element(
        "testsuite",
        name="cudal1 check",
        tests=str(len(findings)),
        failures=str(sum(finding.state in WORSE for finding in findings)),
        errors=str(sum(finding.state is State.UNJUDGED for finding in findings)),
        skipped=str(sum(finding.state is State.ELSEWHERE for finding in findings)),
        time=f"{sum(finding.took_s for finding in findings):.3f}",
    )
    for finding in findings:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=printable(finding.record),
            name=printable(f"{finding.problem} on {finding.device_kind}"),
            time=f"{finding.took_s:.3f}",
        )
        properties = ElementTree.SubElement(case, "properties")
        for name, value in _properties(finding).items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
        reason = printable(finding.reason)
        if finding.state in WORSE:
            said = ElementTree.SubElement(case, "failure", type=finding.state, message=reason)
            said.text = reason
        elif finding.state is State.UNJUDGED:
            ElementTree.SubElement(case, "error", type=finding.state, message=reason)
        elif finding.state is State.ELSEWHERE:
            ElementTree.SubElement(case, "skipped", message=reason)
        else:
            ElementTree.SubElement(case, "system-out").text = reason
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def save(path: Path, text: str, *, appends: bool = False) -> None:
    """Write a report; `appends` for a job's summary, which other steps write to, too.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        with path.open("a" if appends else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def _properties(finding: Finding) -> dict[str, str]:
    found = {"state": str(finding.state), "proven": f"{finding.proven:.4f}"}
    if finding.speedup is not None:
        found["today"] = f"{finding.speedup:.4f}"
    if finding.p_value is not None:
        found["p_value"] = f"{finding.p_value:.2g}"
    if finding.detects is not None:
        found["detects"] = f"{finding.detects:.4f}"
    if finding.changed_versions:
        found["since"] = printable(", ".join(finding.changed_versions))
    return found


def _count(findings: Sequence[Finding]) -> str:
    counts = {
        state: sum(finding.state is state for finding in findings)
        for state in State
        if any(finding.state is state for finding in findings)
    }
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{len(findings)} proofs: {said}"
