"""Renders prompts from templates; a prompt carries the ids of its exemplars.

Templates are Markdown files under `cudal1/prompts/STYLE/`: `paper` holds the paper's prompts for
general language models, `compact` the short ones that fit a small policy, `reviewer` the
reviewer's. `reference` holds what any style may add about a reference. Placeholders are `$name`. A
name that is missing or left over is an error, except for facts about the device, which a template
may use or leave. Inserted code is not scanned for placeholders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from string import Template
from typing import Literal, TypeVar

from pydantic import Field

from cudal1.errors import ConfigError
from cudal1.hack_case import HackCase
from cudal1.problem import Problem
from cudal1.record import Record, content_id
from cudal1.selection.exemplar import Attempt, Exemplar

NO_SOURCE = "# no code"
"""Stands for the source of an attempt without one."""
BEHIND = "reference"
"""Folder of the templates of what may stand behind a prompt, the same for every style."""
S = TypeVar("S", bound=Exemplar | Attempt)
"""An earlier answer, as a prompt shows it."""


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


class Paragraph(Record):
    """A paragraph that stands behind a prompt of any style."""

    template: str
    """Name of its template, in the folder `reference`."""
    values: dict[str, str] = Field(default_factory=dict)
    """Texts for the template's placeholders; a fence in them is taken apart."""


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
    """Ids of the candidates shown, in order: exemplars, failures, earlier attempts."""
    exemplar_scores: tuple[float, ...] = ()
    """Their scores, in the same order; a failure has 0."""
    num_shown: int = 0
    """Number of earlier answers shown, those without a candidate too; 0: a plain prompt."""

    @property
    def id(self) -> str:
        """Hash of the messages."""
        return content_id(*(part for m in self.messages for part in (m.role, m.content)))

    def as_chat(self) -> list[dict[str, str]]:
        """Return the messages as chat libraries want them."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


def generation_prompt(
    problem: Problem,
    *,
    style: PromptStyle,
    facts: DeviceFacts | None = None,
    behind: Sequence[Paragraph] = (),
) -> Prompt:
    """Return the one-shot prompt of stages 1 and 2 (paper 2.2, table 2).

    `facts` may be None only where the style's template uses none. Paragraphs stand behind the rest.
    """
    text = _render(style, "generate", facts, reference=problem.source.rstrip())
    return _prompt(text, (style, "generate"), behind=behind)


def contrastive_prompt(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    *,
    style: PromptStyle,
    failures: Sequence[Attempt] = (),
    facts: DeviceFacts | None = None,
    behind: Sequence[Paragraph] = (),
) -> Prompt:
    """Return the prompt of stage 3, with scored exemplars (paper 2.4.1, table 3).

    `failures` stand behind the exemplars, each with the reason why it failed; they have a source.
    Paragraphs stand behind the rest. Without exemplars and failures it is the generation prompt.
    """
    if not exemplars and not failures:
        return generation_prompt(problem, style=style, facts=facts, behind=behind)
    shown = [
        _render(
            style,
            "exemplar",
            facts,
            index=str(index),
            score=f"{exemplar.score:.2f}",
            source=_shown(exemplar.source),
        )
        for index, exemplar in enumerate(exemplars, start=1)
    ]
    shown += [
        _render(
            style,
            "failure",
            facts,
            index=str(index),
            feedback=failure.feedback,
            source=_shown(failure.source or NO_SOURCE),
        )
        for index, failure in enumerate(failures, start=len(exemplars) + 1)
    ]
    text = _render(
        style,
        "contrast",
        facts,
        reference=problem.source.rstrip(),
        exemplars="\n".join(shown).rstrip(),
    )
    templates = ["contrast", "exemplar", *(["failure"] if failures else [])]
    return _prompt(
        text, *((style, name) for name in templates), shown=[*exemplars, *failures], behind=behind
    )


def refinement_prompt(
    problem: Problem,
    attempts: Sequence[Attempt],
    *,
    style: PromptStyle,
    facts: DeviceFacts | None = None,
) -> Prompt:
    """Return the prompt for a better answer than earlier ones (Kevin-32B, arXiv 2507.11948, 3).

    It shows a trajectory's attempts, the newest last, each with what became of it. Without attempts
    it is the generation prompt.
    """
    if not attempts:
        return generation_prompt(problem, style=style, facts=facts)
    shown = [
        _render(
            style,
            "attempt",
            facts,
            index=str(index),
            score=f"{attempt.score:.2f}",
            feedback=attempt.feedback,
            source=_shown(attempt.source or NO_SOURCE),
        )
        for index, attempt in enumerate(attempts, start=1)
    ]
    text = _render(
        style,
        "refine",
        facts,
        reference=problem.source.rstrip(),
        attempts="\n".join(shown).rstrip(),
    )
    return _prompt(text, (style, "refine"), (style, "attempt"), shown=attempts)


def fitting_contrastive_prompt(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    *,
    style: PromptStyle,
    max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
    failures: Sequence[Attempt] = (),
    facts: DeviceFacts | None = None,
) -> tuple[Prompt, int]:
    """Return a contrastive prompt of at most `max_tokens` if possible, and its number of tokens.

    A longer prompt loses what it shows: first all that would be too long alone, then failures from
    the first given on, then exemplars likewise. A prompt that shows nothing is returned even if it
    is too long: the caller decides which problems a policy is asked about.
    """

    def made(shown: Sequence[Exemplar | Attempt]) -> Prompt:
        return contrastive_prompt(
            problem,
            [each for each in shown if isinstance(each, Exemplar)],
            failures=[each for each in shown if isinstance(each, Attempt)],
            style=style,
            facts=facts,
        )

    return _fitting([*failures, *exemplars], made, max_tokens=max_tokens, num_tokens=num_tokens)


def fitting_refinement_prompt(
    problem: Problem,
    attempts: Sequence[Attempt],
    *,
    style: PromptStyle,
    max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
    facts: DeviceFacts | None = None,
) -> tuple[Prompt, int]:
    """Return a refinement prompt of at most `max_tokens` if possible, and its number of tokens.

    A longer prompt loses attempts: first all that would be too long alone, then the oldest.
    """

    def made(shown: Sequence[Attempt]) -> Prompt:
        return refinement_prompt(problem, shown, style=style, facts=facts)

    return _fitting(attempts, made, max_tokens=max_tokens, num_tokens=num_tokens)


def _fitting(
    shown: Sequence[S],
    made: Callable[[Sequence[S]], Prompt],
    *,
    max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
) -> tuple[Prompt, int]:
    """Return the prompt and its tokens that shows the last of some things, as many as fit."""

    def counted(shown: Sequence[S]) -> tuple[Prompt, int]:
        prompt = made(shown)
        return prompt, num_tokens(prompt.as_chat())

    prompt, tokens = counted(shown)
    if tokens > max_tokens:
        shown = [each for each in shown if counted([each])[1] <= max_tokens]
        prompt, tokens = counted(shown)
    while tokens > max_tokens and shown:
        shown = shown[1:]
        prompt, tokens = counted(shown)
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


def _shown(source: str) -> str:
    """Return a source without anything that ends its fence: strings and comments may hold it."""
    return source.rstrip().replace("```", "` ` `")


def answer_text(source: str) -> str:
    """Return a successful source as the answer that a policy is trained on."""
    return f"```python\n{source.rstrip()}\n```"


def _prompt(
    text: str,
    *templates: tuple[str, str],
    shown: Sequence[Exemplar | Attempt] = (),
    behind: Sequence[Paragraph] = (),
) -> Prompt:
    for each in behind:
        templates = (*templates, (BEHIND, each.template))
        values = {name: _shown(value) for name, value in each.values.items()}
        text += "\n\n" + _render(BEHIND, each.template, None, **values)
    named = [(each.candidate_id, each.score) for each in shown if each.candidate_id is not None]
    return Prompt(
        messages=(Message(role="user", content=text),),
        exemplar_ids=tuple(candidate_id for candidate_id, _ in named),
        exemplar_scores=tuple(score for _, score in named),
        num_shown=len(shown),
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
