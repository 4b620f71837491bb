"""Put the parts of a server together, and run it until it is told to end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from cudal1.errors import ConfigError, WorkerError
from cudal1.ledger import Ledger
from cudal1.ledger.journal import unfinished
from cudal1.problem import Problem
from cudal1.serving.bell import Bell
from cudal1.serving.bench import Bench, OpenProcesses, Rules
from cudal1.serving.clients import Clients
from cudal1.serving.connections import Connections, protocol_with
from cudal1.serving.gate import Gate
from cudal1.serving.interface import Catalogue, Interface
from cudal1.serving.judging_loop import JudgingLoop
from cudal1.serving.limits import Quotas, Tokens
from cudal1.serving.metrics import Metrics
from cudal1.serving.store import SubmissionStore, Waiting
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

STAGE = re.compile(r"serve@(\d+)")
"""Pattern of the ledger's stages of a server, a stage for each life that ended in order."""
REFRESH_S = 2.0
"""Seconds between two looks at the clients' file, and at the thread that judges."""
BACKLOG = 256
"""Connections that the kernel keeps until they are taken."""
KEEP_ALIVE_S = 30
"""Seconds that a connection may be silent between two requests."""
GRACE_S = 2
"""Seconds that open requests have when the server ends."""


@dataclass(frozen=True)
class Place:
    """The address that a server listens on, and the files that it keeps."""

    folder: Path
    tokens: Path
    host: str
    port: int
    certificate: Path | None = None
    """A certificate chain for TLS, in PEM; None: plain HTTP."""
    key: Path | None = None
    """The certificate's private key, in PEM."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a server's folder alone, making it if it is absent.

    Raises:
        ConfigError: another server holds it, or it cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used ({error.strerror})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(
            f"{folder}: another server holds this folder; stop it, or give another --folder"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigError: the port is in use, or the address is none of this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # accepted sockets inherit it; else head and body of a response are 40 ms apart
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        remedy = "give another --port" if is_port else "give an address of this machine as --host"
        in_use = error.errno == errno.EADDRINUSE
        said = "is in use" if in_use else f"cannot be listened on ({error.strerror})"
        raise ConfigError(f"{host}:{port}: {said}; {remedy}") from error


def check_tls(certificate: Path, key: Path) -> None:
    """Load a certificate and its key as the server will.

    Raises:
        ConfigError: they are no PEM files of a certificate and its key, or the key is locked.
    """
    try:  # without an answer for a passphrase OpenSSL would ask the terminal
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--certificate {certificate} --key {key}: cannot be used together "
            f"({getattr(error, 'reason', None) or error}); give PEM files of a certificate chain "
            "and of its key, without a passphrase"
        ) from error


def serve(
    place: Place,
    problems: Sequence[Problem],
    rules: Rules,
    open_processes: OpenProcesses,
    *,
    one_team: bool,
    version: str,
    announce: str,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigError: the folder, the port, the certificate or the clients' file cannot be used.
        StoreError: ledger or queue cannot be used, at the start or later.
    """
    with ExitStack() as opening:
        opening.enter_context(held(place.folder))
        clients = Clients(place.tokens)
        if place.certificate is not None and place.key is not None:
            check_tls(place.certificate, place.key)
        listener = opening.enter_context(listening(place.host, place.port))
        ledger = opening.enter_context(Ledger.open(place.folder))
        ledger.begin(_stage(place.folder))
        store = SubmissionStore(place.folder)
        opening.callback(store.close)
        bell, metrics, quotas, connections = Bell(), Metrics(), Quotas(), Connections()
        catalogue = Catalogue(problems)

        def share_of(name: str) -> float:
            return next((each.share for each in clients.all if each.name == name), 1.0)

        def settled(waiting: Waiting, said: Verdict | str, spent_s: float) -> None:
            metrics.answered(waiting.client, said, spent_s)
            bell.ring(waiting.client)

        loop = JudgingLoop(
            store,
            ledger,
            Bench(rules, open_processes),
            catalogue.by_id,
            rules,
            share_of=share_of,
            settled=settled,
            one_team=one_team,
        )
        interface = Interface(
            place.folder,
            store,
            loop,
            catalogue,
            rules,
            bell=bell,
            quotas=quotas,
            metrics=metrics,
            knows=clients.knows,
        )
        app = interface.app(version)
        gate = Gate(app, Tokens(clients), quotas, connections.proven, metrics.requested)
        config = uvicorn.Config(
            gate,
            http=protocol_with(connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=place.certificate,
            ssl_keyfile=place.key,
        )
        server = _Server(config)
        app.router.lifespan_context = _lifespan(server, bell, clients, loop, announce)
        loop.start()
        try:
            server.run(sockets=[listener])
            if not loop.is_alive:
                said = WorkerError("the thread that judges has died; start again, nothing is lost")
                raise loop.failure or said
        finally:
            loop.stop()
        ledger.export()


class _Server(uvicorn.Server):
    """A server that ends in order on a signal; uvicorn's own would raise the signal again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def _lifespan(
    server: uvicorn.Server, bell: Bell, clients: Clients, loop: JudgingLoop, announce: str
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        bell.hang()
        watching = asyncio.create_task(_watch(server, clients, loop))
        log.info(announce)
        yield
        watching.cancel()

    return lifespan


async def _watch(server: uvicorn.Server, clients: Clients, loop: JudgingLoop) -> None:
    """Read the clients' file when it changes; end the server once nothing can be kept."""
    while loop.is_alive:
        try:
            if clients.refresh():
                log.info("serve: %d clients", len(clients.all))
        except ConfigError as error:
            log.warning("serve: %s; the clients stay as they were", error)
        await asyncio.sleep(REFRESH_S)
    server.should_exit = True


def _stage(folder: Path) -> str:
    """Return the stage of a server that was killed in this folder, else a new one."""
    for stage, _ in unfinished(folder):
        if STAGE.fullmatch(stage):
            return stage
    found = (STAGE.fullmatch(path.name) for path in (folder / "shards").glob("*"))
    return f"serve@{max((int(each[1]) for each in found if each), default=0) + 1}"
