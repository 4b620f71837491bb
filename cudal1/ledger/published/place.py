"""The place of publications: a folder, or a prefix in a bucket."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cudal1.errors import StoreError
from cudal1.ledger.published.folder import FolderPlace

if TYPE_CHECKING:
    import duckdb

BUCKET = "s3://"
MANIFESTS = "publications"
"""The folder of a place that tells it from other folders."""


class Place(Protocol):
    """A store of files that are written once. Names are relative, with slashes."""

    @property
    def name(self) -> str:
        """The place as people write it."""
        ...

    def files(self) -> dict[str, int]:
        """Return the size of each file in bytes, by its name."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        ...

    def write(self, name: str, content: Path) -> None:
        """Store a copy of a local file, whole or not at all where the place can."""
        ...

    def url(self, name: str) -> str:
        """Return the path by which a prepared connection reads a file."""
        ...

    def prepare(self, connection: duckdb.DuckDBPyConnection, sizes: dict[str, int]) -> None:
        """Let a connection read files with known sizes in bytes."""
        ...


def is_published(text: str | os.PathLike[str]) -> bool:
    """Return whether a text names a place of publications, not the data folder of a run."""
    text = os.fspath(text)
    return re.match(r"\w+:/", text) is not None or (Path(text) / MANIFESTS).is_dir()


def open_place(text: str | os.PathLike[str], *, endpoint: str | None = None) -> Place:
    """Return the place that a text names: a folder, or `s3://BUCKET/PREFIX`.

    Args:
        text: the folder or the address.
        endpoint: address of a server that speaks S3's protocol; None: as `AWS_ENDPOINT_URL` says,
            else Amazon's.

    Raises:
        StoreError: it is neither, or the endpoint is none.
    """
    text = os.fspath(text)
    if text.startswith(BUCKET):
        from cudal1.ledger.published.bucket import BucketPlace  # pyarrow takes a while

        return BucketPlace(text, endpoint)
    if re.match(r"\w+:/", text):
        raise StoreError(f"{text}: facts are read from a folder or from s3://BUCKET/PREFIX")
    if endpoint is not None:
        raise StoreError(f"{text}: a folder has no endpoint; leave it out, or name s3://…")
    return FolderPlace(Path(text))
