"""Tests of the clients' file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.errors import ConfigError
from cudal1.serving.clients import Clients, add_token

HASH = "'" + 64 * "0" + "'"


def test_a_token_finds_its_client_and_no_other_text_does(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    tokens = {name: add_token(path, name) for name in ("alice", "bob")}
    clients = Clients(path)
    for name, token in tokens.items():
        found = clients.find(token)
        assert found is not None
        assert found.name == name
    hashes = [client.token_sha256 for client in clients.all]
    for other in ("", "alice", tokens["bob"][:-1], *hashes, "\ud800"):
        assert clients.find(other) is None


def test_the_file_holds_no_token_and_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    token = add_token(path, "alice")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_a_changed_file_is_read_again_and_a_removed_client_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    alice = add_token(path, "alice")
    clients = Clients(path)
    assert not clients.refresh()
    bob = add_token(path, "bob")
    assert clients.refresh()
    assert clients.find(bob) is not None
    path.write_text(path.read_text().split("bob")[1].replace(":", "bob:", 1))
    assert clients.refresh()
    assert clients.find(alice) is None
    assert clients.find(bob) is not None


def test_a_file_that_is_spoilt_while_it_is_used_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    token = add_token(path, "alice")
    clients = Clients(path)
    path.write_text("alice: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        clients.refresh()
    assert clients.find(token) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no client"),
        ("- alice", "holds no client"),
        ("alice: {token_sha256: short}", "alice: token_sha256"),
        (f"alice: {{token_sha256: {HASH}, shares: 2}}", "alice: shares: extra"),
        (f"A b: {{token_sha256: {HASH}}}", "A b: name"),
        (f"a: {{token_sha256: {HASH}}}\nb: {{token_sha256: {HASH}}}", "one token"),
        ("alice: {1: 2}", "keys that are no text"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=said) as error:
        Clients(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_absent_file_and_one_that_others_write_are_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tokens.yaml"
    with pytest.raises(ConfigError, match="--new-token NAME"):
        Clients(path)
    add_token(path, "alice")
    path.chmod(0o620)
    with pytest.raises(ConfigError, match="chmod 600"):
        Clients(path)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    add_token(path, "alice")
    with pytest.raises(ConfigError, match="has this client"):
        add_token(path, "alice")
    with pytest.raises(ConfigError, match="not a name"):
        add_token(path, "Alice: x")
