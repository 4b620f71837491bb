"""`cudal1 serve`: the judge over HTTP."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.options.settings import (
    ContractOption,
    DeviceOption,
    ModeOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    choose,
)
from cudal1.cli.options.suites import SizesOption, load_named
from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail, say
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.settings import extras

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudal1.harness.schedule.device_processes import DeviceProcess
    from cudal1.problem import Problem
    from cudal1.serving.bench import Rules
    from cudal1.serving.server import Place

FOLDER = Path("data/serve")
TOKENS = "tokens.yaml"

FolderOption = Annotated[
    Path, typer.Option("--folder", help="Where its queue and its ledger are kept")
]
TokensOption = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help=f"Its clients. Default: FOLDER/{TOKENS}"),
]
NewTokenOption = Annotated[
    str | None,
    typer.Option("--new-token", metavar="NAME", help="Add a client, print its token once, and end"),
]
SuitesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        metavar="SUITE",
        help="shipped (the default) or kernelbench:FOLDER; give it again for another",
    ),
]
HostOption = Annotated[str, typer.Option("--host", help="The address to listen on")]
PortOption = Annotated[int, typer.Option("--port", min=1, max=65535)]
CertificateOption = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="For TLS: a PEM file")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The certificate's private key")
]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="Plain HTTP beyond this machine: something else does TLS")
]
OneTeamOption = Annotated[
    bool,
    typer.Option(
        "--one-team",
        help="All clients trust each other: what one has had judged, another learns at once",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Judge on all machines of a Ray cluster"),
]


def serve(
    folder: FolderOption = FOLDER,
    tokens: TokensOption = None,
    new_token: NewTokenOption = None,
    suite: SuitesOption = None,
    sizes: SizesOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8088,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    plain: PlainOption = False,
    one_team: OneTeamOption = False,
    cluster: ClusterOption = None,
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    contract: ContractOption = None,
    mode: ModeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The new token as JSON, for machines")
    ] = False,
) -> None:
    """Judge for other people's programs, over HTTP.

    Clients submit candidates for the problems of the suites that are named here. What is received
    and what is judged outlives any end of the server. SIGTERM or Ctrl-C ends it.

    Example: cudal1 serve --new-token alice

    Example: cudal1 serve --suite kernelbench:../KernelBench --device cuda
    """
    from cudal1.serving.clients import add_token
    from cudal1.serving.server import Place, serve

    place = Place(folder, tokens or folder / TOKENS, host, port, certificate, key)
    try:
        if new_token is not None:
            _make_folder(place.tokens.parent)
            token = add_token(place.tokens, new_token)
            if as_json:
                answer_json({"name": new_token, "token": token}, indent=2)
            else:
                answer(token)
            return
        if as_json:
            raise ConfigError("--json goes with --new-token; answers of the server are JSON anyway")
        if cluster is not None and find_spec("ray") is None:
            raise ConfigError(f"--cluster {extras.remedy('ray')}")
        _refuse_plain(place, is_plain=plain)
        settings = choose(params, device, protocol, precision, contract, mode)
        problems = _problems(suite or ["shipped"], sizes, settings)
        _log_to_standard_error()
        scheme = "http" if certificate is None else "https"
        serve(
            place,
            problems,
            _rules(settings),
            partial(_device_processes, cluster, settings),
            one_team=one_team,
            version=_version(),
            announce=f"serve: {len(problems)} problems at {scheme}://{host}:{port}; "
            f"its interface: {scheme}://{host}:{port}/docs",
        )
    except CudaL1Error as error:
        fail(str(error))


def _rules(settings: Settings) -> Rules:
    from cudal1.serving.bench import Rules

    return Rules(
        settings.device_class, settings.protocol, settings.max_reference_ms, settings.trial_limit_s
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used ({error.strerror})") from error


def _refuse_plain(place: Place, *, is_plain: bool) -> None:
    """Refuse to send tokens in the clear.

    Raises:
        ConfigError: others could read them, or half of what TLS needs is missing.
    """
    for name, file in (("--certificate", place.certificate), ("--key", place.key)):
        if file is not None and not file.is_file():
            raise ConfigError(f"{name} {file}: no such file")
    if (place.certificate is None) != (place.key is None):
        raise ConfigError("--certificate and --key go together")
    try:
        is_near = place.host == "localhost" or ip_address(place.host).is_loopback
    except ValueError:
        is_near = False
    if place.certificate is None and not is_near and not is_plain:
        raise ConfigError(
            f"--host {place.host}: tokens would be sent in the clear; give --certificate and "
            "--key, or --plain where something else does TLS"
        )


def _problems(suites: list[str], sizes: Path | None, settings: Settings) -> list[Problem]:
    """Return the problems of several suites; of equal ones, the first."""
    found: dict[str, Problem] = {}
    for name in suites:
        for each in load_named(name, settings.device_class, sizes=sizes):
            found.setdefault(each.id, each)
    return list(found.values())


@contextmanager
def _device_processes(cluster: str | None, settings: Settings) -> Iterator[Sequence[DeviceProcess]]:
    from cudal1.cli.judging.devices import devices_of_one_kind

    with devices_of_one_kind(cluster, settings.device_class) as (found, left_out):
        for line in left_out:
            say(f"note: not judged on {line}")
        yield found


def _log_to_standard_error() -> None:
    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    logger = logging.getLogger("cudal1")
    logger.setLevel(logging.INFO)
    logger.addHandler(Said())


def _version() -> str:
    try:
        return version("cudal1")
    except PackageNotFoundError:
        return "0"
