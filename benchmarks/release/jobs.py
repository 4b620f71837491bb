"""Hand one row of the release to a worker script, in a folder of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.release.children import Children, Ended
from benchmarks.release.rows import Entry


def run_job(
    children: Children,
    worker: Path,
    folder: Path,
    entry: Entry,
    content: Mapping[str, Any],
    *,
    limit_s: float,
    environment: Mapping[str, str],
) -> tuple[dict[str, Any] | None, Ended]:
    """Run a worker on a row; the folder is emptied first, and removed afterwards.

    Args:
        children: keeps the worker's process.
        worker: a script that is given a job's file and writes the file that `result` names there.
        folder: where it runs, with the row's sources in it.
        entry: the row; it has a source.
        content: of the job, besides the files' places.
        limit_s: seconds that the worker may take.
        environment: variables for it.

    Returns:
        What it has written, None where that is nothing or no JSON; and how it ended.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = {name: str(folder / f"{name}.py") for name in ("reference", "candidate")}
    for name, source in (("reference", entry.reference), ("candidate", entry.source or "")):
        Path(files[name]).write_text(source, encoding="utf-8")
    job, result = folder / "job.json", folder / "result.json"
    job.write_text(json.dumps({**content, **files, "result": str(result)}), encoding="utf-8")
    ended = children.run(worker, job, limit_s=limit_s, environment=environment)
    try:
        written = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        written = None
    shutil.rmtree(folder, ignore_errors=True)
    return written, ended
