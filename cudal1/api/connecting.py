"""`cudal1.connect`: the ledger as a DuckDB connection, for notebooks and other programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cudal1.errors import ConfigError
from cudal1.settings import extras

if TYPE_CHECKING:
    import duckdb


def connect(
    place: str | os.PathLike[str] = "data", *, endpoint: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a read-only DuckDB connection to a run's ledger, with its tables and views.

    It shows what stages have found until now, unfinished ones included, and stays as it is: to see
    more, connect again. It locks nothing that a stage needs, so it may stay open all day. Tables of
    one's own are temporary: `create temp table`.

    Args:
        place: the folder that holds the ledger, such as a checkout's `data`, or a place to which
            machines publish: `s3://BUCKET/PREFIX`, or a folder.
        endpoint: address of a server that speaks S3's protocol; None: as `AWS_ENDPOINT_URL` says,
            else Amazon's.

    Raises:
        StoreError: there is no ledger, or it cannot be read.
        ConfigError: DuckDB is not installed.
    """
    try:
        from cudal1.ledger import Ledger
    except ModuleNotFoundError as error:
        remedy = extras.remedy(error.name or "")
        if remedy is None:
            raise
        raise ConfigError(f"cudal1.connect {remedy}") from error
    return Ledger.read(place, endpoint=endpoint).connection
