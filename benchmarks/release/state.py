"""Hold the folder that keeps an audit's results, row by row, so that it can go on there."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ablation.memory import Lines
from benchmarks.release.rows import Which
from cudal1.errors import ConfigError
from cudal1.protocol import Mode, PrecisionClass


@dataclass(frozen=True)
class State:
    """The folders of results, and of files that are not needed afterwards."""

    folder: Path
    work: Path
    """Folder of sources, builds, caches."""

    def judging(self, which: Which, mode: Mode, precision: PrecisionClass) -> Path:
        """Return the folder of verdicts on some sources in a mode and a class."""
        return self.folder / f"{which}-{mode}-{precision}"

    @property
    def checks(self) -> Path:
        """Return the file of plain checks."""
        return self.folder / "checks.jsonl"

    @property
    def evaluations(self) -> Path:
        """Return the file of results of KernelBench's own evaluator."""
        return self.folder / "kernelbench.jsonl"

    @contextmanager
    def held(self, subject: Mapping[str, str]) -> Iterator[int]:
        """Hold the folder; yield a descriptor that keeps it held in processes that inherit it.

        Args:
            subject: what everything in the folder must have in common, by name.

        Raises:
            ConfigError: another run is at work there, or its results are of another subject.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{self.folder}: another run is at work there; wait for it, or name another "
                    "--out"
                ) from None
            known = self.folder / "subject.json"
            if not known.exists():
                known.write_text(json.dumps(dict(subject)), encoding="utf-8")
            for name, value in json.loads(known.read_text(encoding="utf-8")).items():
                if subject.get(name) != value:
                    raise ConfigError(f"{self.folder}: is of another {name}; name another --out")
            yield lock.fileno()


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file of results; none where it does not exist."""
    return list(Lines(file)) if file.exists() else []
