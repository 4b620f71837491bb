"""`cudal1 doctor`: the sandbox, devices and tools of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from cudal1.cli.terminal.answer import answer_console, answer_json
from cudal1.cli.terminal.ending import fail, say
from cudal1.errors import CudaL1Error
from cudal1.problem import DeviceClass


def doctor(
    device: Annotated[DeviceClass, typer.Option(help="Whose workers to look at")] = DeviceClass.CPU,
    forget_references: Annotated[
        bool,
        typer.Option(
            "--forget-references",
            help="Only forget what was found of references: they are tried anew",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines")] = False,
) -> None:
    """What stands around a candidate on this machine, what is missing, and what to do about it.

    Exit code: 0 fit to judge, 2 not.

    Example: cudal1 doctor
    """
    from cudal1.cli.show_health import tables
    from cudal1.harness.admission import known_references
    from cudal1.harness.device.device import find_device
    from cudal1.services.doctor import examine

    if forget_references:
        known = known_references.of_this_user()
        num_records = known.forget().num_records if known else 0
        say(f"forgotten: {num_records} records of references")
        return
    try:
        health = examine(find_device(device))
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json(health, indent=2)
    else:
        console = answer_console()
        for table in tables(health):
            console.print(table)
    if not health.is_fit:
        fail(f"not fit to judge: no {', no '.join(health.missing)}")
