"""Serve MLflow's UI, for the curves and policies of this checkout, until Ctrl-C.

python -m tasks.server.mlflow_ui [--port 5000]
"""

from __future__ import annotations

import argparse
import os
import sys

from cudal1.errors import ConfigError, CudaL1Error
from cudal1.processes import inherited, python
from cudal1.tracking import store
from tasks.server.checkout import CHECKOUT, refuse_elsewhere
from tasks.server.programs import HOST, is_taken
from tasks.stage import DATA

PORT = 5000


def main() -> None:
    """Become MLflow's server; exit with code 2 when it cannot be started."""
    parser = argparse.ArgumentParser(prog="python -m tasks.server.mlflow_ui", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT)
    port: int = parser.parse_args().port
    try:
        refuse_elsewhere()
        if is_taken(port):
            raise ConfigError(
                f"http://{HOST}:{port}: something is running there already; choose another --port"
            )
        store.settle(DATA)
    except CudaL1Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    # the server's workers import from the folder that they start in, so it must hold no modules
    folder = CHECKOUT / DATA / "mlruns"
    folder.mkdir(parents=True, exist_ok=True)
    address = f"sqlite:///{(CHECKOUT / DATA).resolve() / store.DATABASE}"
    command = python(
        "mlflow",
        "server",
        "--workers",
        "1",
        "--backend-store-uri",
        address,
        "--host",
        HOST,
        "--port",
        str(port),
    )
    os.chdir(folder)
    # otherwise ten processes and a gigabyte
    os.execve(command[0], command, inherited(MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"))


if __name__ == "__main__":
    main()
