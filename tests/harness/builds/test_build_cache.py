"""A build is found by its source and toolchain; a failing disk costs builds and no verdict."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import diskcache
import pytest

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness.builds import build_cache as module
from cudal1.harness.builds.build_cache import BuildCache, default_folder

TOOLS = "g++ and nvcc"
ONE, OTHER = (Candidate(problem_id="p", source=source) for source in ("one", "other"))


def test_another_cache_of_the_folder_finds_a_kept_build(tmp_path: Path) -> None:
    BuildCache(tmp_path, TOOLS).keep(ONE, b"object")
    again = BuildCache(tmp_path, TOOLS)
    assert ONE in again
    assert again.of(ONE) == b"object"
    assert OTHER not in again
    assert again.of(OTHER) == b""


def test_an_empty_build_is_known_too(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, TOOLS)
    kept.keep(ONE, b"")
    assert ONE in kept
    assert (kept.of(ONE), kept.find(ONE)) == (b"", b"")
    assert (kept.of(OTHER), kept.find(OTHER)) == (b"", None)


@pytest.fixture
def own_folder_is_new() -> Iterator[None]:
    module._own_folder.cache_clear()
    yield
    module._own_folder.cache_clear()


def test_builds_are_kept_in_the_user_s_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_folder() == tmp_path / "cache" / "cudal1" / "builds"
    assert default_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_costs_the_cache_and_no_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_folder_is_new: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    theirs = default_folder()
    os.chown(theirs, 65534, 65534)
    own = default_folder()
    assert own != theirs
    assert own == default_folder()
    assert own.stat().st_mode & 0o777 == 0o700
    BuildCache(own, TOOLS).keep(ONE, b"object")
    assert BuildCache(own, TOOLS).of(ONE) == b"object"
    assert "XDG_CACHE_HOME" in caplog.text
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize("home", ["/proc/nothing", "/dev/null"])
def test_a_home_that_cannot_be_written_to_costs_the_cache_and_no_verdict(
    home: str, monkeypatch: pytest.MonkeyPatch, own_folder_is_new: None
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    assert default_folder().is_dir()


def test_a_build_of_another_toolchain_is_not_found(tmp_path: Path) -> None:
    BuildCache(tmp_path, TOOLS).keep(ONE, b"object")
    assert ONE not in BuildCache(tmp_path, "others")


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        sqlite3.OperationalError("database or disk is full"),
        diskcache.Timeout(),
    ],
    ids=["system", "database", "busy"],
)
def test_a_disk_that_fails_loses_builds_and_nothing_else(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = BuildCache(tmp_path, TOOLS)
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
def test_a_folder_that_cannot_be_used_is_named_in_the_error(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "builds"
    if damage == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / "cache.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(ConfigError, match=r"builds.*XDG_CACHE_HOME"):
        BuildCache(folder, TOOLS)
