"""Tests of objects as files that several threads read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.fs

from cudal1.ledger.published.objects import ObjectFile


def test_each_thread_has_a_position_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "object"
    path.write_bytes(bytes(range(100)))
    file = ObjectFile(pyarrow.fs.LocalFileSystem(), str(path))
    file.seek(10)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: (file.seek(50), file.read(2))[1]).result() == bytes([50, 51])
    assert file.read(2) == bytes([10, 11])
    assert file.tell() == 12


def test_a_file_that_is_not_read_is_not_opened(tmp_path: Path) -> None:
    file = ObjectFile(pyarrow.fs.LocalFileSystem(), str(tmp_path / "missing"))
    file.seek(10)
    file.close()
