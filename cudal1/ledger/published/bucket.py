"""A prefix in a bucket of object storage as the place of publications.

pyarrow's client speaks S3's protocol. It takes credentials where Amazon's own tools do: `AWS_*`
variables, `~/.aws`, the role of a machine or container. DuckDB's own client is an extension that
must be downloaded (docs/log/2026-11-30-storage.md says what was compared).
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs

from cudal1.errors import StoreError
from cudal1.ledger.published.objects import PROTOCOL, Objects

if TYPE_CHECKING:
    import duckdb

CONNECT_TIMEOUT_S = 5
"""Seconds that a server may take to accept a connection."""
REQUEST_TIMEOUT_S = 60
"""Seconds that a server may take for one answer; files are read in parts of some megabytes."""
REMEDIES = {
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist": "there is no such bucket: make it, or "
    "correct the name",
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|SIGNATURE|InvalidAccessKeyId|code 40[13]"
    r"|credentials": "the server refuses: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or "
    "AWS_PROFILE) of somebody who may list, read and, to publish, write there",
    r"PermanentRedirect|code 301|wrong region|AuthorizationHeaderMalformed": "the bucket is in "
    "another region: set AWS_REGION",
    r"NETWORK_CONNECTION|curlCode|resolve|connect|timed? ?out": "the server cannot be reached: "
    "check --endpoint, AWS_ENDPOINT_URL and the network",
}
"""Remedies by a pattern of what the client says; the first that fits."""


def _named_endpoint() -> str | None:
    """Return the endpoint that the environment names: pyarrow takes the scheme of none from it."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


class BucketPlace:
    """A prefix in a bucket; see `Place`."""

    def __init__(self, address: str, endpoint: str | None) -> None:
        self._address = address.rstrip("/")
        self._root = address.partition("://")[2].rstrip("/")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]+(/.*)?", self._root):
            raise StoreError(f"{address}: names no bucket; write s3://BUCKET/PREFIX")
        if endpoint is not None and not re.match(r"https?://[^/]+", endpoint):
            raise StoreError(f"{endpoint}: is no endpoint; write http://HOST:PORT or https://HOST")
        self._files = pyarrow.fs.S3FileSystem(
            endpoint_override=endpoint or _named_endpoint(),
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
        )

    @property
    def name(self) -> str:
        """The address as people write it."""
        return self._address

    def files(self) -> dict[str, int]:
        """Return the size of each object below the prefix in bytes, by its name."""
        bucket, _, prefix = self._root.partition("/")
        with self._explained():
            # a missing prefix is empty, a missing bucket is a mistake
            if self._files.get_file_info(bucket).type == pyarrow.fs.FileType.NotFound:
                raise OSError("NoSuchBucket")
            chosen = pyarrow.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
            found = self._files.get_file_info(chosen)
        start = len(bucket) + 1 + (len(prefix) + 1 if prefix else 0)
        return {each.path[start:]: each.size for each in found if each.is_file}

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with self._explained(), self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return stream.read()

    def write(self, name: str, content: Path) -> None:
        """Store a copy of a local file; what a kill leaves of it has another size."""
        with self._explained():
            pyarrow.fs.copy_files(
                str(content),
                f"{self._root}/{name}",
                source_filesystem=pyarrow.fs.LocalFileSystem(),
                destination_filesystem=self._files,
            )

    def url(self, name: str) -> str:
        """Return the path by which a prepared connection reads an object."""
        return f"{PROTOCOL}://{self._root}/{name}"

    def prepare(self, connection: duckdb.DuckDBPyConnection, sizes: dict[str, int]) -> None:
        """Let a connection read objects."""
        known = {self.url(name): size for name, size in sizes.items()}
        connection.register_filesystem(Objects(self._files, known))

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Raise what the client says as one line with a remedy."""
        try:
            yield
        except OSError as error:
            said = " ".join(str(error).split())
            for pattern, remedy in REMEDIES.items():
                if re.search(pattern, said, re.IGNORECASE):
                    raise StoreError(f"{self._address}: {remedy}") from error
            raise StoreError(f"{self._address}: {said[:300]}; try again") from error
