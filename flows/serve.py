"""Prefect on this machine: a server with its UI, a worker, and the report; until Ctrl-C.

    python -m flows.serve             # all of it
    python -m flows.serve --worker    # a worker alone, for the server at PREFECT_API_URL

Work pool, queues and deployments that are missing are made; those that are there, and schedules
that an operator has changed in the UI, are left as they are. What ends by itself is started again.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

from cudal1.errors import ConfigError, CudaL1Error, StoreError
from cudal1.harness import find_device
from cudal1.params import Params
from tasks.account import REPORT_URL
from tasks.deployments import POOL, end_what_nobody_runs, make_what_is_missing
from tasks.programs import LOOK_S, Program
from tasks.stage import DATA
from tasks.transfer import device_name
from tasks.workspace import is_busy

HOST = "127.0.0.1"
DEFAULT_PORT = 4200
LEASES = "prefect.server.concurrency.lease_storage.filesystem"
START_S = 180.0
"""For a server to answer: a new database on a busy machine takes a minute."""
SERVER_STOP_S, WORKER_STOP_S = 20.0, 60.0
Environment = dict[str, str]


def main() -> None:
    """Start, wait, stop; exit code 0 after Ctrl-C, 2 when something cannot be started."""
    parser = argparse.ArgumentParser(prog="python -m flows.serve", description=__doc__)
    parser.add_argument("--worker", action="store_true", help="only a worker: PREFECT_API_URL")
    only_worker = parser.parse_args().worker
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        if only_worker:
            _work(dict(os.environ), default=False)
        else:
            _serve()
    except CudaL1Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped")


def _serve() -> None:
    port = int(os.environ.get("PREFECT_SERVER_API_PORT", DEFAULT_PORT))
    url = f"http://{HOST}:{port}"
    if _answers(f"{url}/api/health"):
        raise ConfigError(
            f"{url}: a server is running there already; use it, stop it, or set "
            "PREFECT_SERVER_API_PORT to another port"
        )
    environment = {
        **os.environ, "PREFECT_API_URL": f"{url}/api", "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        # a server that forgets who holds a deployment's slot stops the run a few minutes later
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
    }  # fmt: skip
    os.environ["PREFECT_API_URL"] = environment["PREFECT_API_URL"]
    log = Path(os.environ.get("PREFECT_HOME", Path.home() / ".prefect")) / "server.log"
    server = Program(
        "Prefect's server", [sys.executable, "-m", "prefect", "server", "start"],
        environment=environment, log=log,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.callback(server.stop, wait_s=SERVER_STOP_S)
        server.start()
        _wait_for(f"{url}/api/health", server, log)
        environment[REPORT_URL] = stack.enter_context(_report_served(port + 1))
        print(f"Prefect's UI: {url}  (Ctrl-C stops server and worker)", flush=True)
        _work(environment, default=True, server=server)


def _work(environment: Environment, *, default: bool, server: Program | None = None) -> None:
    """Run a worker for this machine's device, and for everything else if it is the main one."""
    if not environment.get("PREFECT_API_URL"):
        raise ConfigError("set PREFECT_API_URL to the server's, such as http://MACHINE:4200/api")
    kind = device_name(find_device(Params.load(Path("params.yaml")).device).kind)
    queues = ["default", kind] if default else [kind]
    if default:
        _prepare(environment)
    words = [word for queue in queues for word in ("--work-queue", queue)]
    worker = Program(
        "the worker",
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--limit", "1",
         "--name", f"{kind} {socket.gethostname()}", *words],
        environment=environment, log=None,
    )  # fmt: skip
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


def _prepare(environment: Environment) -> None:
    """Let the server know our flows, and which of its runs nobody runs any more."""
    for made in make_what_is_missing(environment):
        print(f"made {made}", flush=True)
    if not is_busy():
        # other machines may have workers on the queues of devices
        for name in end_what_nobody_runs("default"):
            print(f"run {name} had lost its worker: what it has done is kept", flush=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _wait_for(url: str, server: Program, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(url):
        if not server.is_running or time.monotonic() > deadline:
            raise StoreError(f"Prefect's server does not start; what it said is in {log}")
        time.sleep(LOOK_S)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to know."""


@contextmanager
def _report_served(port: int) -> Generator[str]:
    """Serve data/report to this machine's browser; the page's address."""
    handler = partial(_Quiet, directory=str(DATA / "report"))
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError:  # taken: whichever is free
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
