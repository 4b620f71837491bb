"""Shows a null test to a person, and to machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudal1.cli.options.settings import Settings
from cudal1.cli.terminal.answer import json_text
from cudal1.cli.verdicts.show import Row, sandbox_line, show
from cudal1.harness.schedule.calibration import Calibration, calibrate
from cudal1.verdict import Verdict

if TYPE_CHECKING:
    from cudal1.cli.verdicts.null_verdicts import Found


def show_found(found: Found, settings: Settings, *, stopped: str, each: bool) -> None:
    """Print the calibration; first, when asked, a line for each verdict."""
    calibration = calibrate([verdict for _, verdict in found.verdicts])
    rows: list[Row] = []
    if each:
        rows += [Row(problem.key, _line(verdict)) for problem, verdict in found.verdicts]
    rows += [Row(f"{problem.key}", f"not judged: {why}") for problem, why in found.rejected]
    rows += [
        Row(problem.key, f"{verdict.status} against itself: {verdict.reason}", "red")
        for problem, verdict in found.verdicts
        if not verdict.is_successful
    ]
    if rows:
        show(rows)
    show(_calibration_rows(calibration, found, settings, stopped))


def as_text(found: Found, settings: Settings, stopped: str) -> str:
    """Return the calibration, the problems left out and the verdicts as JSON."""
    calibration = calibrate([verdict for _, verdict in found.verdicts])
    return json_text(
        {
            "calibration": calibration.model_dump(),
            "is_clean": calibration.is_clean,
            "is_complete": not stopped,
            "device_kind": found.device_kind,
            "protocol": settings.protocol.model_dump(mode="json"),
            "protocol_id": settings.protocol.id,
            "rejected": {problem.key: why for problem, why in found.rejected},
            "verdicts": [
                {"problem": problem.key, **verdict.model_dump(mode="json")}
                for problem, verdict in found.verdicts
            ],
        },
        indent=2,
    )


def _line(verdict: Verdict) -> str:
    m = verdict.measurement
    if m is None:
        return str(verdict.status)
    return (
        f"certified {m.certified:.2f}x, estimated {m.speedup:.3f}x "
        f"({m.num_quads} quads{'' if m.is_stable else ', unsteady'}; {m.reference_us:.1f} us)"
    )


def _calibration_rows(c: Calibration, found: Found, settings: Settings, stopped: str) -> list[Row]:
    done = f"{c.num_verdicts} verdicts on references against themselves"
    if stopped:
        done = f"PARTIAL, {stopped}: {c.num_verdicts} of {found.asked} verdicts"
    rows = [
        Row("null test", done, "yellow" if stopped else ""),
        Row("above 1.00", f"{c.num_above_100}", "yellow" if c.num_above_100 else "green"),
        Row("above 1.01", f"{c.num_above_101}", "bold red" if c.num_above_101 else "green"),
    ]
    if c.num_wrong:
        rows.append(Row("not correct", f"{c.num_wrong}", "red"))
    if c.median is not None:
        rows.append(
            Row("estimates", f"median {c.median:.3f}x, 5 % {c.low:.3f}x, 95 % {c.high:.3f}x")
        )
    rows.append(
        Row("judged on", f"{found.device_kind}, protocol {settings.name} {settings.protocol.id}")
    )
    if found.verdicts:
        rows.append(Row("sandbox", sandbox_line(found.verdicts[-1][1].sandbox)))
    return rows
