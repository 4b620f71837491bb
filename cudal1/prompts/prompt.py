"""Renders prompts from templates; a prompt carries the ids of its exemplars.

Templates are Markdown files under `cudal1/prompts/STYLE/`: `paper` holds the paper's prompts for
general language models, `compact` the short ones that fit a small policy, `reviewer` the
reviewer's. Placeholders are `$name`. A name that is missing or left over is an error, except for
facts about the device, which a template may use or leave. Inserted code is not scanned for
placeholders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from string import Template
from typing import Literal

from cudal1.errors import ConfigError
from cudal1.hack_case import HackCase
from cudal1.problem import Problem
from cudal1.record import Record, content_id
from cudal1.selection.exemplar import Exemplar


class PromptStyle(StrEnum):
    """A folder of templates."""

    PAPER = "paper"
    COMPACT = "compact"


class DeviceFacts(Record):
    """Facts about the device that judges candidates; a template may use each as a `$name`."""

    device: str
    """Name of the device, such as `NVIDIA H100 80GB HBM3`."""
    architecture: str
    """Architecture, such as `sm_90`, or a processor's `x86_64`."""
    memory: str
    """Size of the memory, such as `79 GiB`."""
    cuda_version: str
    """Version of CUDA, such as `13.0`; `none` for a processor."""
    torch_version: str


class Message(Record):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Prompt(Record):
    """A question to a provider."""

    messages: tuple[Message, ...]
    template_id: str
    """Hash of the templates that the messages were rendered from."""
    exemplar_ids: tuple[str, ...] = ()
    """Ids of the candidates shown, in order."""
    exemplar_scores: tuple[float, ...] = ()
    """Their scores, in the same order."""

    @property
    def id(self) -> str:
        """Hash of the messages."""
        return content_id(*(part for m in self.messages for part in (m.role, m.content)))

    def as_chat(self) -> list[dict[str, str]]:
        """Return the messages as chat libraries want them."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


def generation_prompt(
    problem: Problem, *, style: PromptStyle, facts: DeviceFacts | None = None
) -> Prompt:
    """Return the one-shot prompt of stages 1 and 2 (paper 2.2, table 2).

    `facts` may be None only where the style's template uses none.
    """
    text = _render(style, "generate", facts, reference=problem.source.rstrip())
    return _prompt(text, (style, "generate"))


def contrastive_prompt(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    *,
    style: PromptStyle,
    facts: DeviceFacts | None = None,
) -> Prompt:
    """Return the prompt of stage 3, with scored exemplars (paper 2.4.1, table 3).

    Without exemplars it is the generation prompt.
    """
    if not exemplars:
        return generation_prompt(problem, style=style, facts=facts)
    shown = [
        _render(
            style,
            "exemplar",
            facts,
            index=str(index),
            score=f"{exemplar.score:.2f}",
            source=exemplar.source.rstrip(),
        )
        for index, exemplar in enumerate(exemplars, start=1)
    ]
    text = _render(
        style,
        "contrast",
        facts,
        reference=problem.source.rstrip(),
        exemplars="\n".join(shown).rstrip(),
    )
    return _prompt(text, (style, "contrast"), (style, "exemplar"), exemplars=exemplars)


def fitting_contrastive_prompt(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    *,
    style: PromptStyle,
    max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
    facts: DeviceFacts | None = None,
) -> tuple[Prompt, int]:
    """Return a contrastive prompt of at most `max_tokens` if possible, and its number of tokens.

    A longer prompt loses exemplars: first those that would be too long alone, then the first of
    those given. A prompt without exemplars is returned even if it is too long: the caller decides
    which problems a policy is asked about.
    """

    def made(shown: Sequence[Exemplar]) -> tuple[Prompt, int]:
        prompt = contrastive_prompt(problem, shown, style=style, facts=facts)
        return prompt, num_tokens(prompt.as_chat())

    prompt, tokens = made(exemplars)
    if tokens > max_tokens:
        exemplars = [each for each in exemplars if made([each])[1] <= max_tokens]
        prompt, tokens = made(exemplars)
    while tokens > max_tokens and exemplars:
        exemplars = exemplars[1:]
        prompt, tokens = made(exemplars)
    return prompt, tokens


def review_prompt(
    problem: Problem,
    source: str,
    cases: Sequence[HackCase],
    *,
    speedup: float,
    trigger: str,
    fence: str,
    facts: DeviceFacts,
) -> Prompt:
    """Return the prompt that asks the reviewer about a candidate (paper 3.2).

    Args:
        problem: its reference is compared with the candidate.
        source: the candidate's source, stripped of comments and docstrings where that is possible.
        cases: confirmed cheats, the most similar first.
        speedup: the speedup that the harness certified.
        trigger: the reason for asking, in one line.
        fence: a word that no source holds; text between two of it is data.
        facts: facts about the device that judged.
    """
    shown = [
        _render(
            "reviewer",
            "case",
            facts,
            index=str(index),
            kind=case.kind,
            evidence=case.evidence,
            source=case.source.rstrip(),
            fence=fence,
        )
        for index, case in enumerate(cases, start=1)
    ]
    text = _render(
        "reviewer",
        "review",
        facts,
        reference=problem.source.rstrip(),
        source=source.rstrip(),
        cases="\n\n".join(shown) or "None is known yet.",
        speedup=f"{speedup:.2f}",
        trigger=trigger,
        fence=fence,
    )
    return _prompt(text, ("reviewer", "review"), ("reviewer", "case"))


def answer_text(source: str) -> str:
    """Return a successful source as the answer that a policy is trained on."""
    return f"```python\n{source.rstrip()}\n```"


def _prompt(text: str, *templates: tuple[str, str], exemplars: Sequence[Exemplar] = ()) -> Prompt:
    return Prompt(
        messages=(Message(role="user", content=text),),
        exemplar_ids=tuple(exemplar.candidate_id for exemplar in exemplars),
        exemplar_scores=tuple(exemplar.score for exemplar in exemplars),
        template_id=content_id(*(_template(*template).template for template in templates)),
    )


@cache
def _template(folder: str, name: str) -> Template:
    path = files("cudal1") / "prompts" / folder / f"{name}.md"
    return Template(path.read_text(encoding="utf-8"))


def _render(folder: str, name: str, facts: DeviceFacts | None, **values: str) -> str:
    template = _template(folder, name)
    known = {} if facts is None else facts.model_dump()
    wanted = set(template.get_identifiers()) - set(known)
    if wanted != set(values) or not template.is_valid():
        raise ConfigError(
            f"prompts/{folder}/{name}.md: placeholders are {sorted(wanted)}, "
            f"but it is given {sorted(values)}"
        )
    return template.substitute({**known, **values}).rstrip()
