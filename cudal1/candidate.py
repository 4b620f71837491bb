"""Completion (a provider's answer) and Candidate (the source found in it).

Finding the source is `cudal1.extract.extract`; judging it is `cudal1.harness`.
"""

from __future__ import annotations

import re

from cudal1.record import Record, content_id

REFUSED = r"error: HTTP 4(?!08|09|29|99)\d\d"
"""Pattern of the finish reason of a request that the server refused for good."""


class Completion(Record):
    """Raw text from a provider, stored before it is parsed."""

    id: str
    """The same request has the same id, so nothing is asked or paid for twice."""
    stage: str
    """The DVC stage that asked, such as `generate@replay` or `rl`."""
    provider: str
    problem_id: str
    prompt_id: str
    """Hash of the rendered prompt."""
    attempt: int
    """Number of the answer within (stage, provider, problem, prompt), from 0."""
    text: str
    finish_reason: str
    """`stop`, `length`, or the provider's own word."""
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    num_reasoning_tokens: int | None = None
    """Number of the completion's tokens that are not in the text."""
    cost_usd: float = 0.0
    """US dollars that the answered try cost; all tries are in the bill (`cudal1.billing`)."""
    template_id: str
    """Hash of the template that the prompt was rendered from."""
    reasoning: str = ""
    """Thoughts that the provider returns apart from the answer; they are not searched for code."""
    response: str | None = None
    """The body as it came over the wire; None without a wire."""
    logprobs: tuple[float, ...] | None = None
    """Natural logarithm of the probability of each token, the end token too, before temperature and
    top_p. None where it was not asked for."""
    exemplar_ids: tuple[str, ...] = ()
    """Candidates that the prompt showed, in their order."""
    exemplar_scores: tuple[float, ...] = ()
    """Scores that the prompt showed them with, in the same order."""
    island: int | None = None
    """Island that the exemplars came from (`cudal1.selection.islands`); None without islands."""
    turn: int = 1
    """Number of the answer in its trajectory: later ones are shown the earlier attempts."""
    follows: str | None = None
    """Id of the answer before it in its trajectory; None for the first."""

    @property
    def is_refused(self) -> bool:
        """Return whether the server refused the request's content and would refuse it again."""
        return re.match(REFUSED, self.finish_reason) is not None


class Candidate(Record):
    """A source that claims to replace a problem's reference; named by its content."""

    problem_id: str
    source: str

    @property
    def id(self) -> str:
        """The content id over problem and source."""
        return content_id(self.problem_id, self.source)
