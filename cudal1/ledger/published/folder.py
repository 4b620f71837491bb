"""A folder as the place of publications, such as one that machines share."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cudal1.errors import StoreError

if TYPE_CHECKING:
    import duckdb


class FolderPlace:
    """A folder of publications; see `Place`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def name(self) -> str:
        """The folder as people write it."""
        return str(self._folder)

    def files(self) -> dict[str, int]:
        """Return the size of each file in bytes; names that begin with a dot are left out."""
        found = {}
        try:
            for path in self._folder.rglob("*"):
                name = path.relative_to(self._folder)
                if path.is_file() and not any(part.startswith(".") for part in name.parts):
                    found[name.as_posix()] = path.stat().st_size
        except OSError as error:
            raise StoreError(
                f"{self._folder}: cannot be listed ({error.strerror}); name a folder that you may "
                "read"
            ) from error
        return found

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise StoreError(
                f"{self._folder / name}: cannot be read ({error.strerror}); give yourself leave to "
                "read it"
            ) from error

    def write(self, name: str, content: Path) -> None:
        """Store a copy of a local file, whole or not at all."""
        final = self._folder / name
        partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with content.open("rb") as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            partial.replace(final)
        except OSError as error:
            raise StoreError(
                f"{final}: cannot be written ({error.strerror}); free some space, or name a folder "
                "that you may write to"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    def url(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._folder.absolute() / name)

    def prepare(self, connection: duckdb.DuckDBPyConnection, sizes: dict[str, int]) -> None:
        """Do nothing: DuckDB reads local files by itself."""
