"""Read nvidia-smi: once, or again and again while something runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager


def ask(what: str) -> str | None:
    """Return a field of the first GPU; None without a driver, or without its answer."""
    try:
        said = subprocess.run(_query(what), capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return next((line.strip() for line in said.splitlines()), None)


@contextmanager
def watched(what: str, *, every_ms: int) -> Generator[dict[str, list[int]]]:
    """Yield readings of each GPU, by its index as the driver numbers them; filled in at the end.

    They are empty where there is no driver.
    """
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as seen:
        try:
            watch = subprocess.Popen(
                [*_query(f"index,{what}"), f"--loop-ms={every_ms}"], stdout=seen
            )
        except FileNotFoundError:
            yield found
            return
        try:
            yield found
        finally:
            watch.terminate()
            watch.wait()
            seen.seek(0)
            for line in seen:
                index, _, number = line.partition(", ")
                if number.strip().isdigit():
                    found.setdefault(index, []).append(int(number))


def _query(what: str) -> list[str]:
    chosen = [f"--id={ids}"] if (ids := os.environ.get("CUDA_VISIBLE_DEVICES")) else []
    return ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", *chosen]
