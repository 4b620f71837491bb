"""The adversarial judge: what it is asked about a suspicious success, and what it answered.

Source: paper 3.2: a language model looks at rewards that jump, with the three most similar cases of
a growing database beside the code. It may veto and never approve, so words in the code that talk it
into silence gain nothing that was not there before.

An answer counts only when it fits the schema to the letter and, to veto, quotes a line that stands
in the code: a model that only suspects, or invents, has said nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError

from cudal1.hack_case import HackCase
from cudal1.llm.similarity import most_similar
from cudal1.llm.stripping import stripped
from cudal1.problem import Problem
from cudal1.prompt import DeviceFacts, Prompt, judge_prompt
from cudal1.record import content_id
from cudal1.review import Opinion

_OBJECT = re.compile(r"\{[^{}]*\}")
"""The schema is flat; a brace in a quote is the one thing that needs more."""


def question(
    problem: Problem, source: str, cases: Sequence[HackCase], *, count: int, speedup: float,
    trigger: str, facts: DeviceFacts,
) -> tuple[Prompt, tuple[str, ...]]:  # fmt: skip
    """The prompt about a candidate's source, and the ids of the cases in it."""
    code = stripped(source)
    chosen = most_similar(code, cases, count)
    # no source can hold its own hash, so none can end its own fence
    fence = f"-----{content_id('fence', source)}-----"
    prompt = judge_prompt(
        problem, code, chosen, speedup=speedup, trigger=trigger, fence=fence, facts=facts
    )
    return prompt, tuple(case.id for case in chosen)


def opinion_of(answer: str, source: str) -> Opinion | None:
    """The opinion in an answer about a source; None when there is none that counts."""
    for text in _objects(answer):
        try:
            opinion = Opinion.model_validate_json(text, strict=True)
        except ValidationError:
            continue
        if not opinion.is_cheat or _stands_in(opinion.quote, stripped(source)):
            return opinion
    return None


def _objects(answer: str) -> list[str]:
    """What may be the object, the likeliest first: all of the answer, then its last braces."""
    whole = answer[answer.find("{") : answer.rfind("}") + 1]
    return [whole, *reversed(_OBJECT.findall(answer)[-3:])]


def _stands_in(quote: str, code: str) -> bool:
    """Whether the code holds the quote, white space aside."""
    wanted = "".join(quote.split())
    return len(wanted) > 3 and wanted in "".join(code.split())
