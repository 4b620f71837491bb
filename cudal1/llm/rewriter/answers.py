"""The text of an answer: what a language model would have returned around the code."""

from __future__ import annotations

import random

from cudal1.llm.rewriter.rule import Kind
from cudal1.llm.rewriter.teachers import TEACHERS, Style
from cudal1.llm.rewriter.variants import Rewrite, places, variant
from cudal1.record import content_id

_REDRAWS = 4
"""A teacher about to hand in a copy, with something to rewrite, thinks again this often."""
_INTENT = {
    Kind.FAST: "replace {} by a cheaper equivalent",
    Kind.MID: "write {} in another way",
    Kind.SLOW: "compute {} more carefully",
    Kind.WRONG: "simplify {}",
}


def rewrite(reference_source: str, *, teacher: str, attempt: int, seed: int) -> str:
    """A teacher's whole answer to a reference: the same for the same arguments.

    Raises:
        KeyError: when there is no such teacher.
    """
    profile = TEACHERS[teacher]
    rng = random.Random(content_id(teacher, reference_source, str(attempt), str(seed)))
    result = variant(reference_source, rng=rng, weights=profile.weights)
    if places(reference_source):
        for _ in range(_REDRAWS):
            if result.kind is not Kind.REFERENCE:
                break
            result = variant(reference_source, rng=rng, weights=profile.weights)
    return answer(result, rng=rng, style=profile.style)


def answer(result: Rewrite, *, rng: random.Random, style: Style) -> str:
    """A variant as the text of an answer."""
    draw, cut = rng.random(), rng.random() < style.cut
    block = f"```python\n{result.source.rstrip()}\n```"
    if draw < style.bare:
        text = result.source
    elif draw < style.bare + style.sentence:
        text = f"{_sentence(result)}\n\n{block}"
    elif draw < style.bare + style.sentence + style.sections:
        text = (
            f"## Performance Analysis\n\n{_analysis(result)}\n\n"
            f"## Algorithm Design\n\n{_sentence(result)}\n\n"
            f"## Code Implementation\n\n{block}"
        )
    else:
        text = block
    return text[: rng.randrange(len(text) // 2, len(text) - 4)] if cut else text


def _sentence(result: Rewrite) -> str:
    changed = [c for c in result.choices if c.kind in _INTENT]
    if not changed:
        return "The computation is kept as it is."
    steps = [_INTENT[c.kind].format(c.family.replace("_", " ")) for c in changed]
    return "I " + ", then ".join(steps) + "."


def _analysis(result: Rewrite) -> str:
    names = [c.family.replace("_", " ") for c in result.choices]
    if not names:
        return "There is one operation, which the library already does well."
    return f"The time goes into {', '.join(names)}. Fewer passes over memory help most."
