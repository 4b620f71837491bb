"""Give Prefect a home and settings of this checkout, and no others.

Prefect is configured by variables and by files of the working directory: `prefect.toml`, `.env`,
`pyproject.toml`. Variables of the user are dropped first (`cudal1.processes`). Prefect's processes
start in its home, `.prefect`, which has no such files; a flow goes to the checkout when it begins.

No proxy may stand between processes of this machine. Libraries fail on a proxy that they cannot
speak to, even where they are not to use it. So processes that talk to a server here have no proxy
at all. Stages, which ask providers, get it back.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import chdir, contextmanager
from urllib.parse import urlsplit

from cudal1.errors import CudaL1Error, StoreError
from cudal1.processes import is_proxy
from tasks.server.checkout import CHECKOUT, refuse_elsewhere

HOME = CHECKOUT / ".prefect"
PROXIES = "CUDAL1_PROXIES"
"""Environment variable for the variables that `without_proxies` has put aside, as JSON."""
START_S = 180
"""Seconds for a server to answer: a new database on a busy machine takes a minute."""


def settings() -> dict[str, str]:
    """Return the variables that configure every process of Prefect here."""
    return {
        "PREFECT_HOME": str(HOME),
        "PREFECT_PROFILES_PATH": str(HOME / "profiles.toml"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(START_S),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # its logs go to its UI; failures are printed by our own code
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    }


def load() -> None:
    """Load Prefect for one of our programs, with its settings; a flow does this first."""
    try:
        refuse_elsewhere()
        with at_home():
            given = without_proxies({**os.environ, **settings()})
            for name in set(os.environ) - set(given):
                del os.environ[name]
            os.environ.update(given)
            import prefect.context  # noqa: F401 (it reads the settings)
    except CudaL1Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)


@contextmanager
def at_home() -> Generator[None]:
    """Work in Prefect's home inside the block; for the main thread alone.

    Raises:
        StoreError: there can be none.
    """
    try:
        HOME.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{HOME}: {error.strerror}: make it writable") from error
    with chdir(HOME):
        yield


def start_server() -> None:
    """Start Prefect's server for a flow that a person has started; it ends with this process.

    Raises:
        StoreError: it does not start.
    """
    import httpx
    from prefect.server.api.server import SubprocessASGIServer

    with at_home():
        try:
            SubprocessASGIServer().start()
        except (RuntimeError, OSError, httpx.HTTPError) as error:
            said = " ".join(str(error).split())[-300:]
            raise StoreError(
                f"Prefect's server does not start ({said}); if {HOME} was made by another "
                "version, move it away"
            ) from error


def without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the proxies put aside for stages."""
    aside = {name: value for name, value in environment.items() if is_proxy(name)}
    kept = {name: value for name, value in environment.items() if name not in aside}
    return {**kept, PROXIES: json.dumps(aside)} if aside else kept


def with_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the proxies that were put aside."""
    kept = {name: value for name, value in environment.items() if name != PROXIES}
    return {**kept, **json.loads(environment.get(PROXIES, "{}"))}


def is_here(url: str) -> bool:
    """Return whether an address is one of this machine alone."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
