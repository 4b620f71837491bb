"""Pack a source's files for a worker, which does not know how one text holds several files."""

from __future__ import annotations

from cudal1.files.source_files import MAIN, split
from cudal1.harness.shared.packed_source import packed


def packed_source(text: str) -> bytes:
    """Return the files of a problem's or a candidate's text as a worker reads them."""
    files = split(text)
    return packed(files.pop(MAIN), files)
