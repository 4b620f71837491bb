"""The adversarial judge: what it is asked about a suspicious success, and what it answered.

Source: paper 3.2: a language model looks at rewards that jump, with the three most similar cases of
a growing database beside the code. It may veto and never approve, so words in the code that talk it
into silence gain nothing that was not there before.

An answer counts only when it fits the schema to the letter and, to veto, quotes a line that stands
in the code: a model that only suspects, or invents, has said nothing.

Threat: a candidate can put an answer into its code, for the judge to repeat. So every object in an
answer is read, and a veto that counts wins over all that approve.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from cudal1.hack_case import HackCase
from cudal1.llm.similarity import most_similar
from cudal1.llm.stripping import meaning, stripped
from cudal1.problem import Problem
from cudal1.prompt import DeviceFacts, Prompt, judge_prompt
from cudal1.python_file import CODE_POINT
from cudal1.record import content_id
from cudal1.review import Opinion

MAX_CASE_CHARS = 6_000
"""Of each case that is shown, some; of a longer one, both ends."""
MIN_QUOTE_CHARS = 8
"""Of a quote, without white space: fewer stand in every source."""
MAX_OBJECTS = 1_000
"""Places of an answer, its last ones, at which an object may begin."""
_DECODER = json.JSONDecoder()


def code_id(problem_id: str, source: str) -> str:
    """What names the code of a candidate: the same whatever its comments and docstrings say."""
    return content_id("code", problem_id, meaning(source))


def question(
    problem: Problem, source: str, cases: Sequence[HackCase], *, count: int, speedup: float,
    trigger: str, facts: DeviceFacts,
) -> tuple[Prompt, tuple[str, ...]]:  # fmt: skip
    """The prompt about a candidate's source, and the ids of the cases in it."""
    code = stripped(source)
    distinct: dict[str, HackCase] = {}
    for case in cases:
        shown = _case_source(case.source)
        # it keeps the id that it has by its whole source
        distinct[shown] = case.model_copy(update={"source": shown, "candidate_id": case.id})
    chosen = most_similar(code, list(distinct.values()), count)
    # no text can hold its own hash, so none can end the fence around itself
    told = (part for case in chosen for part in (case.evidence, case.source))
    fence = f"-----{content_id('fence', problem.source, code, *told)}-----"
    prompt = judge_prompt(
        problem, code, chosen, speedup=speedup, trigger=trigger, fence=fence, facts=facts
    )
    return prompt, tuple(case.id for case in chosen)


def opinion_of(answer: str, source: str) -> Opinion | None:
    """The opinion in an answer about a source; None when there is none that counts.

    Of several, a veto with a quote that stands in the code, else the last; if that is a veto
    without such a quote, none.
    """
    code = _letters(stripped(source))
    opinions = list(_opinions(answer))
    vetoes = [each for each in opinions if each.is_cheat and _stands_in(each.quote, code)]
    if vetoes:
        return vetoes[-1]
    return opinions[-1] if opinions and not opinions[-1].is_cheat else None


@lru_cache(maxsize=2048)
def _case_source(source: str) -> str:
    """A case as the judge sees it; those that were confirmed here are kept as they came."""
    return stripped(source, max_chars=MAX_CASE_CHARS)


def _opinions(answer: str) -> Iterator[Opinion]:
    """Every object in an answer that fits, in their order, also those within others."""
    starts = [place for place, character in enumerate(answer) if character == "{"]
    for start in starts[-MAX_OBJECTS:]:
        try:
            found, _ = _DECODER.raw_decode(answer, start)
            yield Opinion.model_validate(found, strict=True)
        except (ValueError, RecursionError):  # ValidationError is one
            continue


def _stands_in(quote: str, code: str) -> bool:
    """Whether the letters of a code hold the quote's."""
    wanted = _letters(quote)
    return len(wanted) >= MIN_QUOTE_CHARS and wanted in code


def _letters(text: str) -> str:
    """The text as compared: no matter its white space, format characters, and ways to write one."""
    plain = unicodedata.normalize("NFKC", CODE_POINT.sub("", text))
    return "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
