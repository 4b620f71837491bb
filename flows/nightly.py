"""Run one night: retrain from the champion, run the challenger's duel, and promote the winner.

python -m flows.nightly [--afresh]
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Failed

from cudal1.errors import CudaL1Error
from flows.terminal import finished
from tasks.night.account import account
from tasks.night.night import Night, end_of, open_night
from tasks.reproduce import bring_up_to_date
from tasks.server.workspace import workspace
from tasks.stages import stage_names

LAST = "flows/night/dvc.yaml:promote"


def _run_name() -> str:
    return f"night of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@flow(name="nightly", flow_run_name=_run_name, log_prints=False)
def nightly(afresh: bool = False) -> State[Any] | str:
    """Open a night, or go on with an unfinished one; then run its stages (flows/night/dvc.yaml).

    Args:
        afresh: give an unfinished night up and open another.
    """
    try:
        with workspace("nightly"):
            night = begin(afresh)
            failed = bring_up_to_date(stage_names(until=LAST))
    except CudaL1Error as error:
        return Failed(message=str(error))
    end = end_of(night)
    create_markdown_artifact(account(night, end, failed), key="night", description="the night")
    if end is None:
        return Failed(message=failed or f"{LAST} left no end")
    return end.why


@task(name="night", task_run_name="night")
def begin(afresh: bool) -> Night:
    """Return the night, which says which champion is challenged."""
    night = open_night(afresh=afresh)
    get_run_logger().info(
        "night %d: challenge %d of version %d", night.number, night.challenge, night.champion
    )
    return night


def main() -> None:
    """Run the flow and print its account; exit code 1 when a stage failed."""
    parser = argparse.ArgumentParser(prog="python -m flows.nightly", description=__doc__)
    parser.add_argument("--afresh", action="store_true", help="give an unfinished night up")
    state = finished(nightly, parser.parse_args().afresh)
    print(f"\n{state.result()}")


if __name__ == "__main__":
    main()
