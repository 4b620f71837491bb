"""The command line: a verdict on one's own module, and questions to the ledger.

Everything heavy is imported inside a command, so that `--help` is quick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cudal1.errors import CudaL1Error
from cudal1.problem import DeviceClass

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def cudal1() -> None:
    """Train language models to write faster GPU code, and prove that the code is faster."""


@app.command()
def judge(
    problem: Annotated[Path, typer.Argument(help="A file with Model, get_inputs, get_init_inputs")],
    candidate: Annotated[Path, typer.Argument(help="A file with ModelNew")],
    params: Annotated[Path, typer.Option(help="Whose `protocol` and `device` to use")] = Path(
        "params.yaml"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole verdict, for machines")
    ] = False,
) -> None:
    """Judge one candidate: is it correct, and by how much is it certified faster?

    Example: cudal1 judge model.py faster.py
    """
    from cudal1.candidate import Candidate
    from cudal1.harness import Pool, find_device
    from cudal1.params import Params
    from cudal1.problem import Split
    from cudal1.suite.admission import admit
    from cudal1.suite.loader import load_file, read_source

    try:
        settings = Params.load(params)
        item = load_file(
            problem, suite="own", level=1, split=Split.TRAIN, device_class=settings.device,
            revision="file", sizes={},
        )  # fmt: skip
        admission = admit(item, max_reference_ms=settings.problems.max_reference_ms)
        if not admission.admitted:
            _fail(f"{problem}: cannot be judged: {admission.reason}")
        source = read_source(candidate)
        with Pool(find_device(settings.device), settings.protocol) as pool:
            verdict = pool.judge(item, Candidate(problem_id=item.id, source=source)).verdict
    except CudaL1Error as error:
        _fail(str(error))
    if as_json:
        typer.echo(verdict.model_dump_json(indent=2))
        return
    typer.echo(f"{verdict.status}" + (f": {verdict.reason}" if verdict.reason else ""))
    if verdict.measurement is not None:
        m = verdict.measurement
        typer.echo(
            f"certified {m.certified:.2f}x, estimated {m.speedup:.3f}x at alpha {m.alpha} "
            f"({m.num_quads} quads; {m.reference_us:.1f} us to {m.candidate_us:.1f} us)"
        )
    if verdict.correctness is not None:
        typer.echo(f"outputs compared: {verdict.correctness.num_inputs} inputs")
    for flag in verdict.flags:
        typer.echo(f"{flag.source} saw {flag.kind}: {flag.evidence}")
    typer.echo(f"sandbox: {', '.join(verdict.sandbox)}")


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement")],
    data: Annotated[Path, typer.Option(help="Where ledger and shards are")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON")] = False,
) -> None:
    """Ask the ledger. Reading never disturbs a running pipeline.

    Example: cudal1 sql "from best order by certified desc limit 5"
    """
    import polars as pl
    import polars.selectors as cs

    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as ledger:
            frame = ledger.sql(query)
    except CudaL1Error as error:
        _fail(str(error))
    if as_json:
        rows = frame.with_columns(cs.float().fill_nan(None)).to_dicts()  # JSON knows no NaN
        typer.echo(json.dumps(rows, default=str))
        return
    with pl.Config(
        tbl_rows=200, tbl_cols=30, fmt_str_lengths=60, tbl_width_chars=160,
        tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        typer.echo(str(frame))


@app.command()
def doctor(
    device: Annotated[DeviceClass, typer.Option(help="Whose workers to look at")] = DeviceClass.CPU,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines")] = False,
) -> None:
    """What stands around a candidate on this machine, what is missing, and what to do about it.

    Exit code: 0 fit to judge, 2 not.

    Example: cudal1 doctor
    """
    from rich.console import Console

    from cudal1.harness.device import find_device
    from cudal1.harness.doctor import examine
    from cudal1.harness.show_health import tables

    try:
        health = examine(find_device(device))
    except CudaL1Error as error:
        _fail(str(error))
    if as_json:
        typer.echo(health.model_dump_json(indent=2))
    else:
        console = Console()
        for table in tables(health):
            console.print(table)
    if not health.is_fit:
        _fail(f"not fit to judge: no {', no '.join(health.missing)}")


def _fail(line: str) -> NoReturn:
    typer.echo(" ".join(line.split()), err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()
