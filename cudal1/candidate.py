"""Completion (what a provider returned) and Candidate (the source found in it).

Finding the source is `cudal1.extract`; judging it is `cudal1.harness`.
"""

from __future__ import annotations

import re

from cudal1.record import Record, content_id

REFUSED = r"error: HTTP 4(?!08|09|29|99)\d\d"
"""How the finish reason of a request begins that the server would not have."""


class Completion(Record):
    """Raw text from a provider, stored before anybody parses it."""

    id: str
    """Deterministic: the same request has the same id, so nothing is asked or paid for twice."""
    stage: str
    """The DVC stage that asked, such as `generate@replay` or `rl`."""
    provider: str
    problem_id: str
    prompt_id: str
    """Hash of the rendered prompt."""
    attempt: int
    """Counts from 0 within (stage, provider, problem, prompt)."""
    text: str
    finish_reason: str
    """`stop`, `length`, or what the provider said."""
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    num_reasoning_tokens: int | None = None
    """Those among the completion's tokens that are not in the text."""
    cost_usd: float = 0.0
    """Of the try that was answered; all tries are in the bill (`cudal1.billing`)."""
    template_id: str
    """Hash of the template that the prompt was rendered from."""
    reasoning: str = ""
    """Thoughts that the provider keeps apart from the answer; no code is looked for in them."""
    response: str | None = None
    """The body as it came over the wire; None where there is no wire."""
    logprobs: tuple[float, ...] | None = None
    """Natural logarithm of the probability of each token, the end token too, before temperature and
    top_p; where it was asked for."""
    exemplar_ids: tuple[str, ...] = ()
    """Candidates that were shown in the prompt, in their order."""
    island: int | None = None
    """Which island the exemplars were from (`cudal1.islands`); None where there are none."""

    @property
    def is_refused(self) -> bool:
        """Whether the request failed for what it says: who is asked again will refuse again."""
        return re.match(REFUSED, self.finish_reason) is not None


class Candidate(Record):
    """Source that claims to replace a problem's reference; named by its content."""

    problem_id: str
    source: str

    @property
    def id(self) -> str:
        """Content id over problem and source."""
        return content_id(self.problem_id, self.source)
