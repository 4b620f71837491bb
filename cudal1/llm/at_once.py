"""The exchange of a provider that answers by itself, at once and for nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from cudal1.candidate import Completion
from cudal1.llm.provider import Receipts, Request


class AtOnce:
    """Answers in the order of the requests, each when it is waited for."""

    def __init__(self, answer: Callable[[Request], Completion], receipts: Receipts) -> None:
        self._answer = answer
        self._receipts = receipts
        self._waiting: deque[Request] = deque()

    def ask(self, request: Request) -> None:
        """Put it in the queue."""
        self._waiting.append(request)

    def answer(self) -> Completion:
        """The completion of the oldest request."""
        completion = self._answer(self._waiting.popleft())
        self._receipts.arrived(completion)
        return completion


@contextmanager
def answering_at_once(
    answer: Callable[[Request], Completion], receipts: Receipts
) -> Generator[AtOnce]:
    """`AtOnce` as what `Provider.open` returns."""
    yield AtOnce(answer, receipts)
