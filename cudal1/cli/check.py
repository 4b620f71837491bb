"""`cudal1 check`: are kept versions still correct, and as fast as proven?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.options.settings import MAX_REFERENCE_MS, DeviceOption, WaitOption, device_class_of
from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.bar import bar
from cudal1.cli.terminal.ending import fail, say
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness.admission.admission import TIME_LIMIT_S

if TYPE_CHECKING:
    from cudal1.services.checking.finding import Finding
    from cudal1.services.checking.here import Here

UPDATE_HELP = (
    "Then measure the versions that are correct and certified faster anew, and write today's "
    "verdicts into their records: look at what changed first"
)


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="A folder with *.faster.json, or one of them")
    ] = Path(),
    device: DeviceOption = None,
    wait: WaitOption = 0.0,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit's XML there")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also append a table in Markdown there"),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help=UPDATE_HELP)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All findings, for machines")] = False,
) -> None:
    """Judge kept versions again: still correct, and as fast as proven?

    Each proof of this kind of device is judged anew, beside its reference. Versions run in a
    sandbox, problems as trusted code. Exit code: 0 all are fine, 1 something is slower, wrong or
    changed since it was proven, 2 something could not be judged, or nothing could.

    Example: cudal1 check

    Example: cudal1 check kernels --junit check.xml --markdown check.md

    Example: cudal1 check kernels --update
    """
    from cudal1.applying import records
    from cudal1.cli.verdicts import check_reports
    from cudal1.services.checking.check import check_all
    from cudal1.services.checking.finding import exit_code
    from cudal1.services.checking.here import Here

    try:
        paths = records.find(folder)
        num_proofs = sum(len(records.read(path).proofs) for path in paths)
        if not num_proofs:
            raise ConfigError(f"{folder}: its records hold no proof; cudal1 optimize makes them")
        for file in filter(None, (junit, markdown)):
            if not file.absolute().parent.is_dir():
                raise ConfigError(f"{file}: there is no folder {file.parent}")
        findings: list[Finding] = []
        with Here(
            device_class_of(device),
            max_reference_ms=MAX_REFERENCE_MS,
            time_limit_s=TIME_LIMIT_S,
            wait_s=wait,
        ) as here:
            with bar("checking", num_proofs) as advance:
                for finding in check_all(paths, here.judge, here.device):
                    findings.append(finding)
                    advance()
            if update:
                _update(paths, findings, here)
        if junit is not None:
            check_reports.save(junit, check_reports.junit_xml(findings))
        if markdown is not None:
            check_reports.save(markdown, check_reports.markdown(findings), appends=True)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json(findings, indent=2)
    else:
        for line in check_reports.lines(findings):
            answer(line)
    raise typer.Exit(exit_code(findings))


def _update(paths: Sequence[Path], findings: Sequence[Finding], here: Here) -> None:
    """Write today's verdicts into the records."""
    from cudal1.services.checking.update import update

    for path in paths:
        mine = [finding for finding in findings if finding.record == str(path)]
        for line in update(path, mine, here.judge, here.device):
            say(line)
