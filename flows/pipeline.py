"""Run the paper from top to bottom: bring one DVC stage after another up to date.

python -m flows.pipeline [--until STAGE]
"""

from __future__ import annotations

import argparse
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Failed

from cudal1.errors import ConfigError
from flows.terminal import finished
from tasks.reproduce import bring_up_to_date
from tasks.server.summary import print_summary
from tasks.server.workspace import workspace
from tasks.stages import stage_names


@flow(name="pipeline", log_prints=False)
def pipeline(until: str = "report") -> State[Any] | str:
    """Run each line of dvc.yaml as one task; an up-to-date stage costs a second."""
    try:
        with workspace("pipeline"):
            failed = bring_up_to_date(stage_names(until=until))
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
