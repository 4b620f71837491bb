"""`make clean`: forget what was asked, judged and trained here, but not what is irreplaceable.

Files that git tracks are kept, and so is what people decided about suspected cheats
(`data/shards/hacks`). Answers of providers that charge are kept wherever a table or journal of
`tries` or `rulings` names them: in shards, journals, unclaimed facts and DVC's cache. This module
imports nothing that is installed, so that it runs without an environment.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cudal1 import processes

PLACES = ("data", "dvc.lock", "flows/night/dvc.lock", ".dvc/cache", ".dvc/tmp", ".prefect")
"""Files and folders that runs write."""
LOCKS = {"data/.flow": fcntl.flock, "data/.ledger.duckdb": fcntl.lockf}
"""Files that a flow and a stage lock while they run, each with its kind of lock."""
PRECIOUS = ("tries", "rulings")
"""Tables of the ledger with rows that cost money or a person's thought."""


def main() -> None:
    """Clean the current folder, a checkout; exit with 2 while a run uses its ledger."""
    root = Path.cwd()
    for name, lock in LOCKS.items():
        if _is_locked(root / name, lock):
            print(f"{name}: a run is using it; stop the run, then clean", file=sys.stderr)
            sys.exit(2)
    kept = {*_precious_facts(root / "data"), *_precious_cache(root / ".dvc" / "cache")}
    for path in sorted({path.parent for path in kept if path.suffix == ".parquet"}):
        print(f"kept: {path.relative_to(root)}, with what was paid for or decided")
    kept |= _tracked(root)
    around = {root / "data", *(parent for path in kept for parent in path.parents)}
    for place in PLACES:
        _remove(root / place, kept, around)


def _is_locked(path: Path, lock: Callable[[int, int], object]) -> bool:
    """Return whether another process has locked a file."""
    if not path.exists():
        return False
    with path.open("rb+") as file:
        try:
            lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _precious_facts(data: Path) -> Iterator[Path]:
    """Yield files of shards, unclaimed facts and journals that hold precious rows."""
    for folder in (*data.glob("shards/*"), data / "unclaimed"):
        if any((folder / f"{table}.parquet").exists() for table in PRECIOUS):
            yield from folder.iterdir()  # the answers lie beside the tries
    for journal in data.glob("journal/*.jsonl"):
        content = journal.read_bytes()  # in a text the quotes would be escaped
        if any(f'["{table}",'.encode() in content for table in PRECIOUS):
            yield journal


def _precious_cache(cache: Path) -> Iterator[Path]:
    """Yield files of DVC's cache that belong to a shard with precious rows."""
    for listing in cache.rglob("*.dir"):
        entries = json.loads(listing.read_bytes())
        names = {entry["relpath"] for entry in entries}
        if names & {f"{table}.parquet" for table in PRECIOUS}:
            yield listing
            for hash_ in (entry["md5"] for entry in entries):
                yield listing.parent.parent / hash_[:2] / hash_[2:]


def _tracked(root: Path) -> set[Path]:
    """Return the files that git tracks; none where there is no git or no repository."""
    command = ["git", "ls-files", "-z", "--", *PLACES]
    try:
        listed = subprocess.run(
            command, cwd=root, env=processes.inherited(), capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {root / name for name in listed.decode(errors="surrogateescape").split("\0") if name}


def _remove(path: Path, kept: set[Path], around: set[Path]) -> None:
    """Remove a file or folder, except for what is kept and the folders around it.

    `data` and folders in it may be links. A link to a folder that holds nothing kept is removed as
    a link.
    """
    if path in kept:
        return
    if path.is_dir() and path in around:
        for child in path.iterdir():
            _remove(child, kept, around)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
