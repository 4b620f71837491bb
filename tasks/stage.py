"""Run one stage body for DVC: load params, write the stage's numbers, report failures in one line.

    python -m tasks.STAGE [--item ITEM] [--dry-run]

`--dry-run`, where a stage has it, says what the stage would do and cost, and does nothing.

Exit codes: 0 done, 2 one of our own failures (its line is on standard error), 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cudal1 import interrupt
from cudal1.errors import CudaL1Error, StoreError
from cudal1.services.calm import calm_the_machine
from cudal1.services.telling import duration
from cudal1.settings.params import Params
from tasks.server.checkout import refuse_elsewhere
from tasks.stages import run_key

log = logging.getLogger("cudal1")

DATA = Path("data")
PIPELINE = "pipeline"
"""The name in MLflow of the run that holds the runs of the pipeline's stages."""
REMEDIES = {
    errno.ENOSPC: "disk full; free some space",
    errno.EDQUOT: "disk full; free some space",
    errno.EACCES: "make it writable",
    errno.EROFS: "make it writable",
}
"""Remedies for errors of the machine."""


@dataclass(frozen=True)
class Stage:
    """The stage instance that is running, and its places."""

    name: str
    """DVC's name, such as `filter` or `selfsup@r1`."""
    item: str | None
    """The part behind the `@`."""
    params: Params
    run: str
    """Id of the stage's parameters and input data (`tasks.stages.run_key`)."""

    @property
    def instance(self) -> str:
        """Return the item of a stage that always has one: `run_key` refuses a call without."""
        assert self.item is not None
        return self.item

    @property
    def work(self) -> Path:
        """Return the run's scratch folder, which survives a kill, but not success or a change."""
        return DATA / "work" / self.name / self.run

    def write_metrics(self, numbers: Mapping[str, float | int | str]) -> None:
        """Write `data/metrics/STAGE.json` for `dvc metrics show`."""
        path = DATA / "metrics" / f"{self.name.replace('@', '-')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rounded = {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in numbers.items()
        }
        path.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")


Body = Callable[[Stage], Mapping[str, float | int | str]]
Forecast = Callable[[Params, str | None], None]
"""A function that prints what the stage would do for an item, or for all."""


def main(stage: str, body: Body, *, forecast: Forecast | None = None, is_told: bool = True) -> None:
    """Run `body` as the stage `stage`; the only caller of stage bodies.

    Args:
        stage: the stage's name in DVC, without an item.
        body: does the work and returns the stage's numbers.
        forecast: says what the work would be.
        is_told: whether the stage's last line has its numbers.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tasks.{stage}", description=body.__doc__)
    parser.add_argument("--item", help="which instance of a stage that has several")
    if forecast is not None:
        parser.add_argument("--dry-run", action="store_true", help="say what it would ask and cost")
    given = parser.parse_args()
    item: str | None = given.item
    name = stage if item is None else f"{stage}@{item}"
    calm_the_machine()
    interrupt.listen()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    started = time.monotonic()
    numbers: Mapping[str, float | int | str] = {}
    try:
        refuse_elsewhere()
        params = Params.load(Path("params.yaml"))
        if forecast is not None and given.dry_run:
            forecast(params, item)
            return
        running = Stage(name=name, item=item, params=params, run=run_key(name))
        numbers = body(running)
        running.write_metrics(numbers)
        shutil.rmtree(running.work.parent, ignore_errors=True)
    except CudaL1Error as error:
        _fail(name, error)
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0)
        if remedy is None:
            raise
        _fail(
            name,
            StoreError(
                f"{error.filename or 'data/'}: {error.strerror}: {remedy} and run again; what was "
                "judged so far is kept"
            ),
        )
    except KeyboardInterrupt:
        log.error("%s: interrupted; run again to continue where it stopped", name)
        sys.exit(130)
    parts = [f"done in {duration(time.monotonic() - started)}"]
    parts += told(numbers) if is_told else []
    log.info("%s: %s", name, ", ".join(parts))


def _fail(name: str, error: CudaL1Error) -> None:
    line = " ".join(str(error).split())
    line = line if line.startswith(f"{name}: ") else f"{name}: {line}"
    print(line, file=sys.stderr)
    report = os.environ.get("CUDAL1_FAILURE_FILE")
    if report:  # tasks.reproduce shows it as the reason of the failed task
        Path(report).write_text(line, encoding="utf-8")
    sys.exit(2)


def told(numbers: Mapping[str, float | int | str]) -> list[str]:
    """Return a stage's numbers for people; counts of nothing are left out.

    `num_admitted` is `13 admitted`, `heldout_success` is `held-out success: 0.72 (0.6 to 0.83)`.
    """
    said: list[str] = []
    for name, value in numbers.items():
        words = name.replace("heldout", "held-out").replace("num_", "").replace("_", " ")
        if name.endswith(("_low", "_high")):
            continue
        if isinstance(value, int):
            counted = f"{value:,} {words}" if name.startswith("num_") else f"{words}: {value:,}"
            said += [counted] if value else []
        elif isinstance(value, float):
            low, high = numbers.get(f"{name}_low"), numbers.get(f"{name}_high")
            between = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
            said.append(f"{words}: {value:.3g}{between}")
        else:
            said.append(f"{words}: {value}")
    return said
