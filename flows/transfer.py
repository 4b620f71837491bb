"""Bring one instance of stage `transfer` up to date: the winners on a device of another kind.

python -m flows.transfer DEVICE
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
from tasks.server.workspace import workspace


@flow(name="transfer", flow_run_name="transfer-{device}", log_prints=False)
def transfer(device: str) -> State[Any] | str:
    """Run only `transfer@DEVICE`: its inputs were made elsewhere, and came with `dvc pull`."""
    try:
        with workspace("transfer"):
            failed = bring_up_to_date([f"transfer@{device}"])
    except ConfigError as error:
        return Failed(message=str(error))
    return "up to date" if failed is None else Failed(message=failed)


def main() -> None:
    """Run the flow; exit code 1 when the stage failed."""
    parser = argparse.ArgumentParser(prog="python -m flows.transfer", description=__doc__)
    parser.add_argument("device", help="one of params.yaml: transfer.devices")
    finished(transfer, parser.parse_args().device)


if __name__ == "__main__":
    main()
