"""`cudal1 publish`: a run's facts for all machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.cli.terminal.utf8 import is_text
from cudal1.errors import ConfigError, CudaL1Error


def publish(
    place: Annotated[str, typer.Argument(help="A folder, or s3://BUCKET/PREFIX")],
    data: Annotated[Path, typer.Option(help="Where ledger and shards are")] = Path("data"),
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Server of s3://…, if not Amazon's")
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of this run among all; default: of machine, path"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines")] = False,
) -> None:
    """Publish a run's facts to a folder or a bucket that machines share.

    Facts that are there already are not published again. Nothing of the run is changed.

    Example: cudal1 publish s3://BUCKET/PREFIX

    Example: cudal1 publish s3://BUCKET/PREFIX --endpoint http://HOST:9000 --writer gpu-7
    """
    from cudal1.ledger import Ledger

    try:
        if not all(is_text(each) for each in (place, str(data), endpoint or "", writer or "")):
            raise ConfigError("publish: an argument is not UTF-8 text; write it as UTF-8")
        with Ledger.read(data) as ledger:
            said = ledger.publish(place, endpoint=endpoint, writer=writer)
    except CudaL1Error as error:
        fail(str(error))
    rows = {} if said is None else said.num_rows()
    num_bytes = 0 if said is None else sum(shard.num_bytes for shard in said.shards)
    if as_json:
        name = None if said is None else said.name()
        answer_json({"place": place, "publication": name, "rows": rows, "bytes": num_bytes})
    elif said is None or not rows:
        answer(f"{place}: has all of it already")
    else:
        counted = ", ".join(f"{count} {table}" for table, count in rows.items())
        answer(f"{place}: {counted}; {num_bytes / 1e6:.1f} MB, as {said.writer}")
