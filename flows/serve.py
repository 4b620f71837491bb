"""Run Prefect on this machine until Ctrl-C: a server with its UI, a worker, and the report.

    python -m flows.serve [--port 4200]                                  # all of it
    python -m flows.serve --worker --api http://MACHINE:4200/api         # a worker alone

A missing work pool, queue or deployment is made. Existing ones, and schedules that an operator has
changed in the UI, are left as they are. A program that ends by itself is started again.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

from cudal1.errors import ConfigError, CudaL1Error, StoreError
from cudal1.harness.device.device import find_device
from cudal1.processes import inherited, python
from cudal1.settings.params import Params
from tasks.server.checkout import CHECKOUT
from tasks.server.deployments import POOL, end_what_nobody_runs, make_what_is_missing
from tasks.server.findings import REPORT_URL
from tasks.server.prefect_home import (
    HOME,
    START_S,
    is_here,
    settings,
    with_proxies,
    without_proxies,
)
from tasks.server.programs import HOST, LOOK_S, Program, is_taken
from tasks.server.workspace import is_busy
from tasks.stage import DATA
from tasks.transfer import device_name

DEFAULT_PORT = 4200
LEASES = "prefect.server.concurrency.lease_storage.filesystem"
SERVER_STOP_S, WORKER_STOP_S = 20.0, 60.0
Environment = dict[str, str]


def main() -> None:
    """Start, wait, stop; exit code 0 after Ctrl-C, 2 when something cannot be started."""
    parser = argparse.ArgumentParser(prog="python -m flows.serve", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the server's, and its UI's")
    parser.add_argument("--worker", action="store_true", help="only a worker, for --api")
    parser.add_argument("--api", help="of a server elsewhere, such as http://MACHINE:4200/api")
    given = parser.parse_args()
    if given.worker != bool(given.api):
        parser.error("--worker and --api URL go together: a worker alone is one of a server's")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        if given.worker:
            _work(_environment(given.api), default=False)
        else:
            _serve(given.port)
    except CudaL1Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped")


def _environment(api: str) -> Environment:
    """Return the environment of Prefect's programs that use the server at `api`."""
    given = inherited(
        **settings(),
        PREFECT_API_URL=api,
        # prefect.yaml starts a flow with `python`: it must be the interpreter that runs this
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    )
    return without_proxies(given) if is_here(api) else with_proxies(given)


def _serve(port: int) -> None:
    url = f"http://{HOST}:{port}"
    if is_taken(port):
        what = "a server" if _answers(port) else "another program"
        raise ConfigError(
            f"{url}: {what} is running there already; stop it, or choose another --port"
        )
    environment = _environment(f"{url}/api")
    environment |= {
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        # a server that forgets the holder of a deployment's slot stops the run a few minutes later
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
    }
    log = HOME / "server.log"
    server = Program(
        "Prefect's server",
        python("prefect", "server", "start"),
        environment=environment,
        folder=HOME,
        log=log,
    )
    with ExitStack() as stack:
        stack.callback(server.stop, wait_s=SERVER_STOP_S)
        server.start()
        _wait_for(port, server, log)
        environment[REPORT_URL] = stack.enter_context(_report_served(port + 1))
        print(f"Prefect's UI: {url}  (Ctrl-C stops server and worker)", flush=True)
        print(f"the report: {environment[REPORT_URL]}{_not_yet()}", flush=True)
        _work(environment, default=True, server=server)


def _work(environment: Environment, *, default: bool, server: Program | None = None) -> None:
    """Run a worker for this machine's device, and for everything else if it is the main worker."""
    kind = device_name(find_device(Params.load(Path("params.yaml")).device).kind)
    queues = ["default", kind] if default else [kind]
    if default:
        _prepare(environment)
    words = [word for queue in queues for word in ("--work-queue", queue)]
    worker = Program(
        "the worker",
        python(
            "prefect",
            "worker",
            "start",
            "--pool",
            POOL,
            "--limit",
            "1",
            "--name",
            _worker_name(kind, default=default),
            *words,
        ),
        environment=environment,
        folder=HOME,
        log=None,
    )
    programs = [worker] if server is None else [server, worker]
    try:
        worker.start()
        while True:
            time.sleep(LOOK_S)
            for program in programs:
                if program.keep_running():
                    print(f"{program.name} had ended: started again", flush=True)
    finally:
        worker.stop(wait_s=WORKER_STOP_S)


def _worker_name(kind: str, *, default: bool) -> str:
    """Return a name that no worker of another machine, checkout or duty has."""
    duty = "all flows" if default else f"transfer-{kind} alone"
    return f"{kind} on {socket.gethostname()} in {CHECKOUT.name}, {duty}"


def _not_yet() -> str:
    return "" if (DATA / "report" / "index.html").exists() else "  (once a pipeline has run)"


def _prepare(environment: Environment) -> None:
    """Tell the server about our flows, and about its runs that no process runs."""
    for made in make_what_is_missing(environment):
        print(f"made {made}", flush=True)
    if not is_busy():
        # other machines may have workers on the queues of devices
        for name in end_what_nobody_runs(environment["PREFECT_API_URL"], "default"):
            print(f"run {name} had lost its worker: what it has done is kept", flush=True)


def _answers(port: int) -> bool:
    """Return whether Prefect's server answers there; no proxy is asked."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wait_for(port: int, server: Program, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(port):
        if not server.is_running or time.monotonic() > deadline:
            raise StoreError(f"Prefect's server does not start; what it said is in {log}")
        time.sleep(LOOK_S)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def _report_served(port: int) -> Generator[str]:
    """Serve data/report to this machine's browser; yield the page's address."""
    handler = partial(_Quiet, directory=str(DATA / "report"))
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError:  # the port is taken: use any free one
        server = ThreadingHTTPServer((HOST, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{server.server_port}/index.html"
    finally:
        server.shutdown()
        server.server_close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
