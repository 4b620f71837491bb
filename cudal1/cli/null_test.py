"""`cudal1 null-test`: is this machine fit to give verdicts?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.options.settings import (
    DeviceOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    WaitOption,
    choose,
)
from cudal1.cli.options.suites import SizesOption, SuiteOption, load_named
from cudal1.cli.terminal.answer import answer
from cudal1.cli.terminal.bar import bar
from cudal1.cli.terminal.ending import BAD, GOOD, INTERRUPTED, fail
from cudal1.cli.verdicts.null_verdicts import Found
from cudal1.errors import ConfigError, CudaL1Error, SuiteError
from cudal1.problem import DeviceClass, Problem


def null_test(
    problems: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PROBLEM]...", help="Files with Model, get_inputs, get_init_inputs"
        ),
    ] = None,
    suite: SuiteOption = None,
    sizes: SizesOption = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Verdicts on each problem")] = 1,
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    wait: WaitOption = 0.0,
    each: Annotated[bool, typer.Option("--each", help="A line for each verdict, too")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines")] = False,
) -> None:
    """Judge every reference against itself: nothing may be certified faster.

    Exit code: 0 nothing was certified above 1.01, 1 something was (or a reference failed against
    itself), 2 could not judge, 130 interrupted; what was found until then is shown.

    Example: cudal1 null-test --suite shipped --repeat 3
    """
    from cudal1.cli.verdicts.show_null_test import as_text, show_found
    from cudal1.harness.schedule.calibration import calibrate

    found, stopped = Found(), ""
    try:
        settings = choose(params, device, protocol, precision)
        items = _problems(problems or [], suite, sizes, settings.device_class)
        try:
            _run(items, settings, found, repeat=repeat, wait_s=wait)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except CudaL1Error as error:
            if not found.verdicts:
                raise
            stopped = str(error)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer(as_text(found, settings, stopped))
    elif found.asked or found.rejected:
        show_found(found, settings, stopped=stopped, each=each)
    if stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if stopped:
        fail(stopped)
    if not found.verdicts:
        fail("no problem can be judged")
    clean = calibrate([verdict for _, verdict in found.verdicts]).is_clean
    raise typer.Exit(GOOD if clean else BAD)


def _problems(
    files: list[Path], suite: str | None, sizes: Path | None, device_class: DeviceClass
) -> list[Problem]:
    from cudal1.cli.options.files import read_problem

    if files and (suite or sizes):
        raise ConfigError("give problem files or a --suite with its --sizes, not both")
    if files:
        return [read_problem(file, device_class) for file in files]
    return load_named(suite, device_class, sizes=sizes)


def _run(
    items: list[Problem], settings: Settings, found: Found, *, repeat: int, wait_s: float
) -> None:
    """Judge; `found` grows as verdicts come, so that little is lost when the run is stopped."""
    from cudal1.candidate import Candidate
    from cudal1.harness.admission.admission import admit_all
    from cudal1.harness.device.device import find_device
    from cudal1.harness.schedule.one_device import OneDevice

    device = find_device(settings.device_class)
    found.device_kind = device.kind
    admitted: list[Problem] = []
    with bar("trying references", len(items)) as advance:
        for item, admission in admit_all(items, max_reference_ms=settings.max_reference_ms):
            if admission.admitted:
                admitted.append(item)
            else:
                found.rejected.append((item, admission.reason or ""))
            advance()
    found.asked = len(admitted) * repeat
    if not admitted:
        return
    with (
        OneDevice(device, settings.protocol, wait_s=wait_s) as judge,
        bar("judging", found.asked) as advance,
    ):
        for item in admitted:
            null = Candidate(problem_id=item.id, source=item.null_source)
            for count in range(repeat):
                try:
                    found.verdicts.append((item, judge.judge(item, null).verdict))
                except SuiteError as error:
                    found.rejected.append((item, str(error).removeprefix(f"{item.key}: ")))
                    found.asked -= repeat - count
                    break
                advance()
