"""The messages of the server's interface: what a client sends, and what it gets.

Threat: a body may hold a million mistakes, and a report of each takes seconds in which nothing else
is served. So the first few mistakes of a body are found, and no more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from cudal1.files.text_file import naming_utf8
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.record import Record
from cudal1.verdict import Verdict

MAX_BATCH = 256
"""Submissions in one batch."""


Source = Annotated[str, Field(min_length=1), AfterValidator(naming_utf8)]


class Message(Record):
    """A message that is refused at once if it has more fields than there are."""

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            raise ValueError(f"give no fields but {', '.join(cls.model_fields)}")
        return given


class Asks(Message):
    """The questions of a client about a candidate."""

    timing: bool = True
    """False: whether it is correct, and nothing of its speed."""
    mode: Mode | None = None
    """The mode of all modules; None: the server's."""
    contract: Contract | None = None
    """A candidate's duties; None: the server's."""
    precision: PrecisionClass | None = None
    """The precision class that counts as correct; None: the server's."""

    def protocol(self, base: EvalProtocol) -> EvalProtocol:
        """Return the server's protocol with what is asked; timed."""
        asked = {"mode": self.mode, "contract": self.contract, "precision": self.precision}
        changes = {name: value for name, value in asked.items() if value is not None}
        return base.model_copy(update=changes) if changes else base

    def verdict_protocol(self, base: EvalProtocol) -> EvalProtocol:
        """Return the protocol that stands on the verdict."""
        protocol = self.protocol(base)
        return protocol if self.timing else protocol.checks_only()


class Submission(Asks):
    """A candidate for a problem of the server's suites, or for one of the client's own."""

    problem: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """A problem's key, id, or LEVEL/NUMBER, as `/v1/problems` lists them."""
    problem_source: Source | None = None
    """Instead: the source of an own problem, where the token allows it."""
    source: Source
    """The candidate: a module that defines `ModelNew`."""

    @model_validator(mode="after")
    def _one_problem(self) -> Submission:
        if (self.problem is None) == (self.problem_source is None):
            raise ValueError("give either problem or problem_source")
        return self


class Batch(Message):
    """Several submissions, of which all are taken or none."""

    submissions: Annotated[
        tuple[Submission, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    ]


class State(StrEnum):
    """The state of a submission."""

    WAITING = "waiting"
    """It has no verdict yet."""
    DONE = "done"
    """It has a verdict, for good."""
    REFUSED = "refused"
    """It cannot be judged, for the reason that is given. The same submission tries again."""


class Answer(Record):
    """The state of one submission, and its verdict."""

    id: str
    """The content id of problem, source and protocol: equal submissions have one."""
    state: State
    problem: str
    """The problem's key."""
    number: int | None = None
    """Place among the client's answers, from 1; None while it waits."""
    reason: str | None = None
    """The reason of a refusal."""
    verdict: Verdict | None = None
    speedup: float | None = None
    """The certified speedup; None without a timed success."""


class Answers(Record):
    """The answers to a batch, in its order."""

    answers: tuple[Answer, ...]


class ListedProblem(Record):
    """A problem of the server's suites."""

    key: str
    id: str
    level: int
    number: int
    split: str


class Problems(Record):
    """The problems that can be submitted to."""

    problems: tuple[ListedProblem, ...]


class Health(Record):
    """The state of the server."""

    is_judging: bool
    """False while it has no device, or nothing to judge."""
    complaint: str | None = None
    """The reason why it does not judge although candidates wait."""
    device: str | None = None
    """The kind of device; None until it is known."""
