"""Wake requests that wait for a client's next answer, from the thread that judges."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Bell:
    """An event for each client, set at each of its answers."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}

    def hang(self) -> None:
        """Use the running event loop; call it once, before anything waits."""
        self._loop = asyncio.get_running_loop()

    def event(self, client: str) -> asyncio.Event:
        """Return the event of the client's next answer: take it, look, then wait for it."""
        return self._events.setdefault(client, asyncio.Event())

    def ring(self, client: str) -> None:
        """Wake what waits for the client; any thread may call it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and nothing waits
                self._loop.call_soon_threadsafe(self._ring, client)

    def _ring(self, client: str) -> None:
        event = self._events.pop(client, None)
        if event is not None:
            event.set()


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return whether it came in time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
