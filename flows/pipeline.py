"""Run the paper from top to bottom: bring one DVC stage after another up to date.

python -m flows.pipeline [--until STAGE]
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Failed

from cudal1.errors import ConfigError
from flows.terminal import finished
from tasks.reproduce import bring_up_to_date
from tasks.server.artifacts import show_findings
from tasks.server.summary import print_summary
from tasks.server.workspace import workspace
from tasks.stages import stage_names


def _run_name() -> str:
    return f"pipeline to {flow_run.parameters['until']}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@flow(name="pipeline", flow_run_name=_run_name, log_prints=False)
def pipeline(until: str = "report") -> State[Any] | str:
    """Run each line of dvc.yaml as one task; an up-to-date stage costs a second."""
    try:
        with workspace("pipeline"):
            failed = bring_up_to_date(stage_names(until=until))
            if failed is None:
                show_findings()
    except ConfigError as error:
        return Failed(message=str(error))
    return "up to date" if failed is None else Failed(message=failed)


def main() -> None:
    """Run the flow, then say where the results are; exit code 1 when a stage failed."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=__doc__)
    parser.add_argument("--until", default="report", help="last stage to bring up to date")
    finished(pipeline, parser.parse_args().until)
    print_summary()


if __name__ == "__main__":
    main()
