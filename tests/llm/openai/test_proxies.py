"""Tests that servers on this machine are asked directly, others through the environment's proxy."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.openai import proxies
from cudal1.llm.openai.proxies import ProxyVariableError, is_here, proxy_for
from cudal1.llm.provider import Request
from tests.llm.openai.test_openai_api import answers, provider_for
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]

DEAD = "http://127.0.0.1:9"
VARIABLES = (
    "HTTP_PROXY",
    "http_proxy",
    "Http_Proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
)
HERE = (
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "127.0.0.1",
    "127.1",
    "127.8.8.8",
    "0.0.0.0",
    "::1",
    "[::1]",
    "::",
    "::ffff:127.0.0.1",
    "0x7f000001",
    socket.gethostname(),
    "my-own-name",
)
ELSEWHERE = ("api.example.com", "10.0.0.1", "notlocalhost", "localhost.example.com", "2001:db8::1")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set no proxy, and give the machine one more name."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 my-own-name  # other\n10.0.0.1 other\n")
    monkeypatch.setattr(proxies, "_HOSTS", hosts)


@pytest.mark.parametrize("host", HERE)
def test_names_of_this_machine_are_recognized(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", [*ELSEWHERE, "other", "#", "10"])
def test_names_of_other_machines_are_recognized(host: str) -> None:
    assert not is_here(host)


@pytest.mark.parametrize("variable", VARIABLES)
def test_no_variable_puts_a_proxy_before_a_server_on_this_machine(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, DEAD)
    for url in (stub.base_url, stub.base_url.replace("127.0.0.1", "localhost")):
        provider = provider_for(url, max_retries=0)
        (completion,) = answers(provider, ask(provider))
        assert completion.finish_reason == "stop"


@pytest.mark.parametrize("value", ["nonsense://x", "http://", ":::"])
def test_an_invalid_proxy_variable_does_not_affect_a_server_on_this_machine(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "stop"


@pytest.mark.parametrize(
    ("url", "environment", "variable"),
    [
        ("https://a.example/v1", {"HTTPS_PROXY": DEAD}, "HTTPS_PROXY"),
        ("https://a.example/v1", {"https_proxy": DEAD, "HTTPS_PROXY": "x://y"}, "https_proxy"),
        ("https://a.example/v1", {"HTTP_PROXY": DEAD}, None),
        ("https://a.example/v1", {"HTTP_PROXY": "x://y", "ALL_PROXY": DEAD}, "ALL_PROXY"),
        ("http://a.example/v1", {"Http_Proxy": "127.0.0.1:9"}, "Http_Proxy"),
        ("http://a.example/v1", {"http_proxy": "", "HTTP_PROXY": DEAD}, None),
        ("http://a.example/v1", {}, None),
    ],
)
def test_a_server_elsewhere_is_asked_through_the_proxy_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], variable: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = proxy_for(url)
    assert (found and found.variable) == variable
    assert found is None or str(found.proxy.url).rstrip("/") == DEAD


@pytest.mark.parametrize(
    "excepted",
    ["*", "a.example", ".example", "*.example", "x, a.example:443", "https://a.example", "EXAMPLE"],
)
def test_a_host_in_no_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", excepted)
    assert proxy_for("https://a.example/v1") is None
    monkeypatch.setenv("NO_PROXY", "b.example, ample, 10.0.0.0/8")
    assert proxy_for("https://a.example/v1") is not None


@pytest.mark.parametrize("excepted", ["10.1.2.3", "10.0.0.0/8", "x 10.1.2.3:80", "10.1.2.3/32"])
def test_a_network_in_no_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("http_proxy", DEAD)
    monkeypatch.setenv("no_proxy", excepted)
    assert proxy_for("http://10.1.2.3:8000/v1") is None
    assert proxy_for("http://11.1.2.3:8000/v1") is not None


@pytest.mark.parametrize(
    "value",
    ["ftp://h:1", "http://", "http://h:99999", "http://h:x", "nonsense://u:secret@h", "http://[h"],
)
def test_an_invalid_proxy_variable_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ProxyVariableError, match="HTTPS_PROXY is no address of a proxy") as caught:
        proxy_for("https://a.example/v1")
    assert "secret" not in str(caught.value)
    provider = provider_for("https://a.example/v1")
    with pytest.raises(ProviderError, match=r"provider x: .*HTTPS_PROXY"), provider.open(Kept()):
        pass


def test_an_unreachable_proxy_is_named_by_its_variable(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", DEAD)
    for url in ("http://a.example/v1", "https://a.example/v1"):
        provider = provider_for(url, max_retries=0)
        with pytest.raises(
            ProviderDownError, match=r"variable ALL_PROXY names .*correct ALL_PROXY"
        ):
            answers(provider, ask(provider))


@pytest.fixture
def refusing() -> Iterator[str]:
    """Return the address of a proxy that wants a password."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                connection.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
                )

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_refusing_proxy_is_named_by_its_variable(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, refusing: str, scheme: str
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", refusing)
    provider = provider_for(f"{scheme}://a.example/v1", max_retries=0)
    with pytest.raises(ProviderError, match=f"variable {scheme}_proxy names.*407|asks for a passw"):
        answers(provider, ask(provider))
