"""Tests of `cudal1 serve` from the command line: each mistake is one line with its remedy."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.serving.clients import Clients, add_token
from cudal1.serving.server import held

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def refused(run: Run, *arguments: str) -> str:
    """Return the one line of a command that cannot do what it was told."""
    done = run("serve", "--folder", "served", "--device", "cpu", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_a_new_token_is_printed_once_and_is_the_client_s(run: Run, tmp_path: Path) -> None:
    plain = run("serve", "--folder", "served", "--new-token", "alice")
    as_json = run("serve", "--folder", "served", "--new-token", "bob", "--json")
    tokens = {"alice": plain.stdout.strip(), **{"bob": json.loads(as_json.stdout)["token"]}}
    clients = Clients(tmp_path / "served" / "tokens.yaml")
    found = {name: clients.find(token) for name, token in tokens.items()}
    assert {name: each and each.name for name, each in found.items()} == {
        "alice": "alice",
        "bob": "bob",
    }
    again = run("serve", "--folder", "served", "--new-token", "alice")
    assert (again.returncode, again.stdout) == (2, "")
    assert "has this client" in again.stderr


def test_a_server_without_clients_says_how_to_make_one(run: Run) -> None:
    line = refused(run)
    assert line == ("served/tokens.yaml: no such file; make it with cudal1 serve --new-token NAME")


def test_a_port_in_use_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    add_token(tmp_path / "served" / "tokens.yaml", "alice")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = refused(run, "--port", str(port))
    assert line == f"127.0.0.1:{port}: is in use; give another --port"


def test_a_folder_that_another_server_holds_is_named(run: Run, tmp_path: Path) -> None:
    with held(tmp_path / "served"):
        line = refused(run)
    assert line == ("served: another server holds this folder; stop it, or give another --folder")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "nothing"], "must be shipped or kernelbench:FOLDER"),
        (["--suite", "kernelbench:nowhere"], "nowhere"),
        (["--host", "0.0.0.0"], "tokens would be sent in the clear; give --certificate"),
        (["--certificate", "c.pem"], "--certificate c.pem: no such file"),
        (["--certificate", "model.py"], "--certificate and --key go together"),
        (["--host", "192.0.2.1", "--plain"], "give an address of this machine as --host"),
        (["--json"], "--json goes with --new-token"),
        (
            ["--certificate", "model.py", "--key", "model.py"],
            "give PEM files of a certificate chain and of its key, without a passphrase",
        ),
    ],
)
def test_a_wrong_option_is_one_line(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "served").mkdir()
    add_token(tmp_path / "served" / "tokens.yaml", "alice")
    assert said in refused(run, *arguments)
