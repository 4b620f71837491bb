"""Tests of the interface without a server around it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cudal1.serving.bell import Bell
from cudal1.serving.clients import Client
from cudal1.serving.interface import Catalogue, Interface
from cudal1.serving.limits import Quotas
from cudal1.serving.metrics import Metrics
from cudal1.serving.store import SubmissionStore
from tests.serving.conftest import received
from tests.serving.played import PROBLEMS, RULES


def test_the_stream_of_a_removed_client_ends(tmp_path: Path, store: SubmissionStore) -> None:
    store.add("alice", [received("before")], max_waiting=9)
    known = [True]
    unused: Any = None
    interface = Interface(
        tmp_path,
        store,
        unused,
        Catalogue(PROBLEMS),
        RULES,
        bell=Bell(),
        quotas=Quotas(),
        metrics=Metrics(),
        knows=lambda _: known[0],
    )
    request: Any = SimpleNamespace(
        state=SimpleNamespace(client=Client(name="alice", token_sha256="0" * 64)), headers={}
    )
    (waiting,) = store.waiting("alice", limit=1)
    store.finish(waiting, "refused")

    async def streamed() -> list[str | None]:
        found: list[str | None] = []
        async for event in interface.stream(request):
            found.append(event.id)
            known[0] = False
        return found

    assert asyncio.run(streamed()) == ["1"]
