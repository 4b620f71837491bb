"""Asks the reviewer about a suspicious success, and reads its answer.

Source: paper 3.2. A language model looks at rewards that jump, with the three most similar cases of
a growing database beside the code. It may veto and never approve, so words in the code that talk it
into silence gain nothing that was not there before.

An answer counts only when it fits the schema to the letter. A veto counts only when it quotes a
line that stands in the code. An answer that only suspects, or invents a line, counts for nothing.

Threat: a candidate can put an answer into its code, for the reviewer to repeat. So every object in
an answer is read, and a veto that counts wins over all that approve.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from cudal1.files.python_file import CODE_POINT
from cudal1.hack_case import HackCase
from cudal1.llm.reviewer.similarity import most_similar
from cudal1.llm.reviewer.stripping import meaning, stripped
from cudal1.problem import Problem
from cudal1.prompts.prompt import DeviceFacts, Prompt, review_prompt
from cudal1.record import content_id
from cudal1.review import Opinion

MAX_CASE_CHARS = 6_000
"""Characters of one case that are shown; a longer case is shown by its two ends."""
MIN_QUOTE_CHARS = 8
"""The fewest characters of a quote, without white space: fewer stand in every source."""
MAX_OBJECTS = 1_000
"""The most places of an answer, from its end, at which an object may begin."""
_DECODER = json.JSONDecoder()


def code_id(problem_id: str, source: str) -> str:
    """Return the content id of a candidate's code, which comments and docstrings do not change."""
    return content_id("code", problem_id, meaning(source))


def question(
    problem: Problem,
    source: str,
    cases: Sequence[HackCase],
    *,
    count: int,
    speedup: float,
    trigger: str,
    facts: DeviceFacts,
) -> tuple[Prompt, tuple[str, ...]]:
    """Return the prompt about a candidate's source, and the ids of the cases in it."""
    code = stripped(source)
    distinct: dict[str, HackCase] = {}
    for case in cases:
        shown = _case_source(case.source)
        # the case keeps the id of its whole source
        distinct[shown] = case.model_copy(update={"source": shown, "candidate_id": case.id})
    chosen = most_similar(code, list(distinct.values()), count)
    # no text can hold its own hash, so none can end the fence around itself
    told = (part for case in chosen for part in (case.evidence, case.source))
    fence = f"-----{content_id('fence', problem.source, code, *told)}-----"
    prompt = review_prompt(
        problem, code, chosen, speedup=speedup, trigger=trigger, fence=fence, facts=facts
    )
    return prompt, tuple(case.id for case in chosen)


def opinion_of(answer: str, source: str) -> Opinion | None:
    """Return the opinion in an answer about a source; None when none counts.

    A veto with a quote that stands in the code wins, the last one of several. Without such a veto
    the last opinion counts if it approves; if it is a veto, none counts.
    """
    code = _letters(stripped(source))
    opinions = list(_opinions(answer))
    vetoes = [each for each in opinions if each.is_cheat and _stands_in(each.quote, code)]
    if vetoes:
        return vetoes[-1]
    return opinions[-1] if opinions and not opinions[-1].is_cheat else None


@lru_cache(maxsize=2048)
def _case_source(source: str) -> str:
    """Return a case as the reviewer sees it.

    Cases that were confirmed here are kept as they came, so they are stripped at this point.
    """
    return stripped(source, max_chars=MAX_CASE_CHARS)


def _opinions(answer: str) -> Iterator[Opinion]:
    """Yield every object in an answer that fits the schema, in their order, nested ones too."""
    starts = [place for place, character in enumerate(answer) if character == "{"]
    for start in starts[-MAX_OBJECTS:]:
        try:
            found, _ = _DECODER.raw_decode(answer, start)
            yield Opinion.model_validate(found, strict=True)
        except (ValueError, RecursionError):  # ValidationError is a ValueError
            continue


def _stands_in(quote: str, code: str) -> bool:
    """Return whether the letters of the code contain the quote's, and the quote is long enough."""
    wanted = _letters(quote)
    return len(wanted) >= MIN_QUOTE_CHARS and wanted in code


def _letters(text: str) -> str:
    """Return the text in a form to compare, without white space and format characters (NFKC)."""
    plain = unicodedata.normalize("NFKC", CODE_POINT.sub("", text))
    return "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
