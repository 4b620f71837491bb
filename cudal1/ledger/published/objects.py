"""Objects of a bucket as files that DuckDB reads, in parts and by several threads.

DuckDB reads one file by several threads: each calls `seek`, then `read`. Python's lock is free
while a part travels, so that files with one position for all threads give wrong bytes. A file here
has a position for each thread.

Objects never change, so that DuckDB may keep parts in memory: sizes are known, and each object has
the same time of modification.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import fsspec
import pyarrow.fs

PROTOCOL = "s3n"
"""Name of the protocol, an old one for S3: DuckDB keeps parts of remote files, which it tells by
it. `s3` is left to DuckDB's own extension."""
_WRITTEN_AT = datetime(2001, 1, 1, tzinfo=UTC)
"""Time that stands for "long ago": DuckDB does not keep parts of files that just changed."""


class ObjectFile:
    """One object, opened when it is first read."""

    def __init__(self, files: pyarrow.fs.FileSystem, path: str) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._opened: Any = None
        self._position = threading.local()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the calling thread's position from the start."""
        assert whence == 0, "DuckDB counts from the start"
        self._position.value = offset
        return offset

    def tell(self) -> int:
        """Return the calling thread's position."""
        return getattr(self._position, "value", 0)

    def read(self, size: int = -1) -> bytes:
        """Read from the calling thread's position."""
        assert size >= 0, "DuckDB says how much it wants"
        with self._lock:
            if self._opened is None:
                self._opened = self._files.open_input_file(self._path)
        part = self._opened.read_at(size, self.tell())
        self._position.value = self.tell() + len(part)
        return part

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the object."""
        if self._opened is not None:
            self._opened.close()


class Objects(fsspec.AbstractFileSystem):
    """The objects of a bucket, by their addresses."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, files: pyarrow.fs.FileSystem, sizes: dict[str, int]) -> None:
        super().__init__()
        self._files = files
        self._sizes = sizes

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **_: Any,
    ) -> Any:
        """Return an object as a file to read."""
        assert mode == "rb", "objects are written by publishing alone"
        return ObjectFile(self._files, path.partition("://")[2])

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        return self._sizes[path]

    def modified(self, path: str) -> datetime:
        """Return the same time for all objects."""
        return _WRITTEN_AT

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is such an object."""
        return path in self._sizes

    def glob(self, path: str, maxdepth: int | None = None, **_: Any) -> list[str]:
        """Return the path itself: publications name each of their files."""
        return [path] if path in self._sizes else []
