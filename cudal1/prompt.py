"""Rendering prompts from templates; a Prompt knows its exemplars.

Templates are Markdown files under `cudal1/prompts/STYLE/`: `paper` holds the paper's prompts for
general language models, `compact` the short ones that fit a small policy. Placeholders are
`$name`; a name that is missing or left over is an error. Inserted code is not scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from string import Template
from typing import Literal

from cudal1.contrast import Exemplar
from cudal1.errors import ConfigError
from cudal1.problem import Problem
from cudal1.record import Record, content_id


class PromptStyle(StrEnum):
    """Which folder of templates."""

    PAPER = "paper"
    COMPACT = "compact"


class Message(Record):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Prompt(Record):
    """What a provider is asked."""

    messages: tuple[Message, ...]
    exemplar_ids: tuple[str, ...] = ()
    """Candidates shown, in order."""

    @property
    def id(self) -> str:
        """Hash of the messages."""
        return content_id(*(part for m in self.messages for part in (m.role, m.content)))

    def as_chat(self) -> list[dict[str, str]]:
        """The messages as chat libraries want them."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


def generation_prompt(problem: Problem, *, style: PromptStyle) -> Prompt:
    """The one-shot prompt of stages 1 and 2 (paper 2.2, table 2)."""
    return _prompt(_render(style, "generate", reference=problem.source.rstrip()))


def contrastive_prompt(
    problem: Problem, exemplars: Sequence[Exemplar], *, style: PromptStyle
) -> Prompt:
    """The prompt of stage 3, with scored exemplars (paper 2.4.1, table 3).

    Without exemplars it is the generation prompt.
    """
    if not exemplars:
        return generation_prompt(problem, style=style)
    shown = [
        _render(
            style,
            "exemplar",
            index=str(index),
            score=f"{exemplar.score:.2f}",
            source=exemplar.source.rstrip(),
        )
        for index, exemplar in enumerate(exemplars, start=1)
    ]
    text = _render(
        style, "contrast", reference=problem.source.rstrip(), exemplars="\n".join(shown).rstrip()
    )
    return _prompt(text, exemplar_ids=tuple(exemplar.candidate_id for exemplar in exemplars))


def answer_text(source: str) -> str:
    """How a successful source is written as the answer that a policy is trained on."""
    return f"```python\n{source.rstrip()}\n```"


def _prompt(text: str, *, exemplar_ids: tuple[str, ...] = ()) -> Prompt:
    return Prompt(messages=(Message(role="user", content=text),), exemplar_ids=exemplar_ids)


@cache
def _template(style: PromptStyle, name: str) -> Template:
    path = files("cudal1") / "prompts" / style.value / f"{name}.md"
    return Template(path.read_text(encoding="utf-8"))


def _render(style: PromptStyle, name: str, **values: str) -> str:
    template = _template(style, name)
    wanted = set(template.get_identifiers())
    if wanted != set(values) or not template.is_valid():
        raise ConfigError(
            f"prompts/{style}/{name}.md: placeholders are {sorted(wanted)}, "
            f"but it is given {sorted(values)}"
        )
    return template.substitute(values).rstrip()
