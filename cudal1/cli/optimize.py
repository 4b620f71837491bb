"""`cudal1 optimize`: from a module to its best proven version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.options.files import InputsOption, PathOption, refuse_inputs
from cudal1.cli.options.settings import (
    ContractOption,
    DeviceOption,
    ModeOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    choose,
)
from cudal1.cli.terminal.ending import fail
from cudal1.errors import CudaL1Error
from cudal1.program.backends import Backend

WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PROVIDER",
        help="An author of versions; repeat it for several. teachers, embedded, tuner, an entry of "
        "--params, or a ready one of `cudal1 providers list --profile paper`. Default: teachers, "
        "then embedded, and tuner, which need no key and no network",
    ),
]
BackendOption = Annotated[
    Backend | None,
    typer.Option(
        "--backend",
        help="Ask authors for kernels in this language, and judge only versions that have one",
    ),
]
MinutesOption = Annotated[
    float | None, typer.Option("--minutes", help="Stop after so long. Default: 5 minutes")
]
VerdictsOption = Annotated[
    int | None, typer.Option("--verdicts", help="Stop after so many new verdicts")
]
UsdOption = Annotated[
    float | None,
    typer.Option("--usd", help="Stop when so much is spent; no more is ever spent in this run"),
]


def optimize(
    module: Annotated[
        Path,
        typer.Argument(
            metavar="MODULE",
            help="A file with Model, get_inputs, get_init_inputs; a folder; or "
            "package.module:Class with --inputs",
        ),
    ],
    inputs: InputsOption = None,
    path: PathOption = None,
    with_: WithOption = None,
    backend: BackendOption = None,
    minutes: MinutesOption = None,
    verdicts: VerdictsOption = None,
    usd: UsdOption = None,
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    contract: ContractOption = None,
    mode: ModeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The record of what is kept, for machines")
    ] = False,
) -> None:
    """Find a faster version of a module, prove it, and keep it beside the module.

    Leaves model.faster.py and its record model.faster.json, where a gain was proven twice, and the
    page model.report.html. All facts are in model.optimize: after a Ctrl-C, or asked again, the
    search goes on from there. Nothing is judged or paid for twice. A class is first written as a
    file beside its inputs. Exit code: 0 a proven version is kept, 1 none was found, 2 could not
    search, 130 interrupted.

    Example: cudal1 optimize model.py --minutes 10

    Example: cudal1 optimize package.module:Layer --inputs inputs.py --contract drop_in --mode eval

    Example: cudal1 optimize model.py --with teachers --with gpt-4o --usd 2
    """
    try:
        from cudal1.services.calm import calm_the_machine

        calm_the_machine()  # a policy may write in this process
        from cudal1.cli.optimizing.run import search_and_keep
        from cudal1.cli.optimizing.shown import again
        from cudal1.cli.optimizing.wanted import Wanted
        from cudal1.services.optimizing.authors import authors, default_names, refuse_backend
        from cudal1.services.optimizing.budget import budget_of
        from cudal1.services.optimizing.places import Places, file_of_class
        from cudal1.suite.modules import is_module

        budget = budget_of(minutes, verdicts, usd)
        settings = choose(params, device, protocol, precision, contract, mode)
        asked = authors(with_ or default_names(backend), params, usd=usd)
        if backend is not None:
            refuse_backend(backend, settings.device_class)
        if is_module(module):
            module = file_of_class(
                module, inputs=inputs, folder=path, device_class=settings.device_class
            )
        else:
            refuse_inputs(module, inputs, path)
        places = Places(module.absolute())
        if backend is not None:
            places.refuse_another_language(backend)
        options = {
            "params": params,
            "device": settings.device_class,
            "protocol": protocol,
            "precision": precision,
            "contract": contract,
            "mode": mode,
        }
        wanted = Wanted(places, asked, budget, settings, backend, again(places, options))
        code = search_and_keep(wanted, as_json=as_json)
    except CudaL1Error as error:
        fail(str(error))
    raise typer.Exit(code)
