"""The proxy through which a server is asked: the environment's, for servers elsewhere.

A proxy knows nothing of this machine's own servers, so none is used for those, whatever the
environment says. For other servers the variable's name is kept, so that an error can give it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

_HOSTS = Path("/etc/hosts")
_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True)
class NamedProxy:
    """A proxy, and the environment variable that names it."""

    variable: str
    proxy: httpx2.Proxy


class ProxyVariableError(Exception):
    """A variable that should name a proxy names none; the message says which."""


def proxy_for(url: str) -> NamedProxy | None:
    """Return the proxy for a server's URL; None for a server of this machine, or where none is set.

    Raises:
        ProxyVariableError: the variable's value is no address of a proxy.
    """
    server = httpx2.URL(url)
    if is_here(server.host) or _is_excepted(server.host):
        return None
    for name in (f"{server.scheme}_proxy", "all_proxy"):
        # the name in lower case wins, also when it is empty; urllib and curl read them so
        variables = sorted(v for v in os.environ if v.lower() == name)[::-1]
        if variables and (value := os.environ[variables[0]].strip()):
            return NamedProxy(variables[0], _proxy(variables[0], value))
    return None


def is_here(host: str) -> bool:
    """Return whether a host's name is one of this machine's own."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower():
        return True
    address = _address(name)
    if address is not None:
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_loopback or address.is_unspecified
    return any(name in names and _is_loopback(line) for line, *names in _hosts())


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a name spells, in short forms (`127.1`) too; None otherwise."""
    try:
        return ip_address(name.partition("%")[0])
    except ValueError:
        pass
    if not re.fullmatch(r"[0-9a-fx.]+", name):
        return None
    try:
        return ip_address(socket.inet_aton(name))
    except OSError:
        return None


def _is_loopback(address: str) -> bool:
    found = _address(address)
    return found is not None and found.is_loopback


def _hosts() -> Iterator[list[str]]:
    """Yield an address and its names for each line of the machine's table, without a DNS query."""
    try:
        text = _HOSTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.lower().split("\n"):
        if fields := line.partition("#")[0].split():
            yield fields


def _is_excepted(host: str) -> bool:
    """Return whether NO_PROXY names a host, its domain or its network."""
    name = host.strip("[]").rstrip(".").lower()
    address = _address(name)
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    for entry in re.split(r"[,\s]+", excepted.lower()):
        place = re.sub(r"^(?:\w+://)?(?:\*?\.)?", "", entry)
        if place.count(":") == 1:
            place = place.partition(":")[0]
        place = place.strip("[]")
        if entry == "*" or (place and (name == place or name.endswith(f".{place}"))):
            return True
        with suppress(ValueError):
            if address is not None and address in ip_network(place, strict=False):
                return True
    return False


def _proxy(variable: str, value: str) -> httpx2.Proxy:
    """Return the proxy at an address; the address is not repeated, since it may hold a password."""
    address = value if "://" in value else f"http://{value}"
    problem = ""
    try:
        parts = urlsplit(address)
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.port == 0:
            problem = "is no address of a proxy, such as http://host:port"
        else:
            proxy = httpx2.Proxy(address)
            # builds the proxy's transport, which may need a package that is not installed
            httpx2.AsyncHTTPTransport(proxy=proxy, verify=False)
            return proxy
    except ImportError as error:
        problem = f"names a proxy that needs a package ({' '.join(str(error).split())[:120]})"
    except (ValueError, httpx2.InvalidURL):
        problem = "is no address of a proxy, such as http://host:port"
    raise ProxyVariableError(f"environment variable {variable} {problem}; correct or unset it")
