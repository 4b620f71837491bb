"""Fixtures: ledgers of two machines, and a server that speaks S3's protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from pathlib import Path

import pyarrow.fs
import pytest

from cudal1.ledger import Ledger
from cudal1.ledger.published.publication import Publication
from tests.ledger.conftest import Facts

Make = Callable[..., Path]
BUCKET = "facts"


def publish(data: Path, place: object, writer: str = "here", **given: str) -> Publication | None:
    with Ledger.read(data) as ledger:
        return ledger.publish(str(place), writer=writer, **given)


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def make(tmp_path: Path, facts: Facts) -> Make:
    """Return a maker of a ledger with what all machines know, and one candidate of its own."""

    def made(name: str, stage: str = "filter", certified: float = 1.3) -> Path:
        folder = tmp_path / name
        with Ledger.open(folder) as ledger:
            ledger.begin(stage)
            facts.fill(ledger)
            own = facts.candidate(f"class ModelNew: of {name}")
            ledger.add_completion(facts.completion(f"of {name}", stage=stage), own, None)
            ledger.add_verdict(facts.correct(own, certified), facts.samples(12))
            ledger.export()
        return folder

    return made


@pytest.fixture(scope="session")
def server() -> Generator[str]:
    """Return the address of a server with one bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def endpoint(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the server, and set the variables by which it lets us in."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    files = pyarrow.fs.S3FileSystem(endpoint_override=server, allow_bucket_creation=True)
    files.create_dir(BUCKET)
    return server


@pytest.fixture
def address(endpoint: str, tmp_path: Path) -> str:
    """Return an address in the bucket that no other test uses."""
    return f"s3://{BUCKET}/{tmp_path.name}"
