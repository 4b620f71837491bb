"""What was compiled is found by the same source and toolchain, and lost rather than in the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import diskcache
import pytest

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness.kept import Kept

TOOLS = "g++ and nvcc"
ONE, OTHER = (Candidate(problem_id="p", source=source) for source in ("one", "other"))


def test_what_one_keeps_another_finds(tmp_path: Path) -> None:
    Kept(tmp_path, TOOLS).keep(ONE, b"object")
    again = Kept(tmp_path, TOOLS)
    assert ONE in again
    assert again.of(ONE) == b"object"
    assert OTHER not in again
    assert again.of(OTHER) == b""


def test_what_compiled_nothing_is_known_too(tmp_path: Path) -> None:
    kept = Kept(tmp_path, TOOLS)
    kept.keep(ONE, b"")
    assert ONE in kept
    assert (kept.of(ONE), kept.find(ONE)) == (b"", b"")
    assert (kept.of(OTHER), kept.find(OTHER)) == (b"", None)


def test_another_toolchain_s_is_not_found(tmp_path: Path) -> None:
    Kept(tmp_path, TOOLS).keep(ONE, b"object")
    assert ONE not in Kept(tmp_path, "others")


@pytest.mark.parametrize("error", [
    OSError(28, "No space left on device"), sqlite3.OperationalError("database or disk is full"),
    diskcache.Timeout(),
], ids=["system", "database", "busy"])  # fmt: skip
def test_a_disk_that_fails_loses_what_was_kept_and_nothing_else(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, TOOLS)
    kept.keep(OTHER, b"before")

    def fails(*_: object, **__: object) -> None:
        raise error

    for name in ("get", "set", "__contains__"):
        monkeypatch.setattr(diskcache.Cache, name, fails)
    kept.keep(ONE, b"object")
    assert ONE not in kept
    assert kept.of(OTHER) == b""
    kept.close()


@pytest.mark.parametrize("damage", ["a file", "no database"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "builds"
    if damage == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / "cache.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(ConfigError, match=r"builds.*XDG_CACHE_HOME"):
        Kept(folder, TOOLS)
