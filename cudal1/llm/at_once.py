"""The exchange of a provider that answers at once, on its own and free of charge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from cudal1.candidate import Completion
from cudal1.llm.provider import Receipts, Request


class AtOnce:
    """An exchange that answers requests in their order, each when its answer is waited for."""

    def __init__(self, answer: Callable[[Request], Completion], receipts: Receipts) -> None:
        self._answer = answer
        self._receipts = receipts
        self._waiting: deque[Request] = deque()

    def ask(self, request: Request) -> None:
        """Put the request in the queue."""
        self._waiting.append(request)

    def answer(self) -> Completion:
        """Return the completion of the oldest request."""
        completion = self._answer(self._waiting.popleft())
        self._receipts.arrived(completion)
        return completion


@contextmanager
def answering_at_once(
    answer: Callable[[Request], Completion], receipts: Receipts
) -> Generator[AtOnce]:
    """Open an `AtOnce` exchange, as `Provider.open` does."""
    yield AtOnce(answer, receipts)
