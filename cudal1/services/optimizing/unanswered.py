"""Keep the requests of an author's turn on disk until its next one.

A kill loses answers that a server was about to send. Asked again under the same ids, a server that
honours Idempotency-Key charges once for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from cudal1.llm.provider import Request
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.services.optimizing.places import written

_REQUESTS = TypeAdapter(tuple[Request, ...])


class Unanswered:
    """The requests of each author's last turn, a file for each author.

    Args:
        folder: is made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, author: str, requests: Sequence[Request]) -> None:
        """Note requests before they are sent.

        Raises:
            StoreError: the file cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        written(self._path(author), _REQUESTS.dump_json(tuple(requests)).decode())

    def of(self, author: str, problem: Problem) -> tuple[Request, ...]:
        """Return the requests of the author's last turn about a problem; none without a file."""
        try:
            found = _REQUESTS.validate_json(self._path(author).read_bytes())
        except (OSError, ValueError):
            return ()
        return tuple(request for request in found if request.problem == problem)

    def _path(self, author: str) -> Path:
        return self._folder / f"{content_id(author)}.json"
