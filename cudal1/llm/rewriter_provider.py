"""A provider that answers with the rule-based teachers of `cudal1.teachers`.

The teachers are no language models. They give the pipeline real input without a key.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from cudal1 import teachers as rewriter
from cudal1.candidate import Completion
from cudal1.errors import ProviderError
from cudal1.llm.at_once import answering_at_once
from cudal1.llm.provider import Exchange, Receipts, Request, completion_of
from cudal1.record import content_id
from cudal1.settings.provider_settings import RewriterSettings


class RewriterProvider:
    """A provider that answers at once, the same for the same (teacher, problem, attempt, seed)."""

    is_seeded = True

    def __init__(self, name: str, settings: RewriterSettings) -> None:
        """Look up the teacher; raise ProviderError when there is no such one."""
        if settings.teacher not in rewriter.TEACHERS:
            raise ProviderError(
                f"provider {name}: no teacher named {settings.teacher!r}; "
                f"there are {', '.join(sorted(rewriter.TEACHERS))}"
            )
        self.name = name
        self._teacher = settings.teacher
        self.fingerprint = content_id("rewriter", settings.teacher, _rules_id())

    @property
    def width(self) -> int:
        """One: the provider answers at once."""
        return 1

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """Open an exchange that answers each request once, in order."""
        return answering_at_once(self._answer, receipts)

    def _answer(self, request: Request) -> Completion:
        text = rewriter.rewrite(
            request.problem.source,
            teacher=self._teacher,
            attempt=request.attempt,
            seed=request.seed,
        )
        return completion_of(request, provider=self.name, text=text, finish_reason="stop")


def _rules_id() -> str:
    """Return the content id of the rewriter's own code: other rules are another provider."""
    folder = Path(rewriter.__file__).parent
    files = sorted(folder.rglob("*.py"))
    return content_id(*(file.read_text(encoding="utf-8") for file in files))
