"""The text of an answer: the code, in the words that a language model puts around it."""

from __future__ import annotations

import random

from cudal1.record import content_id
from cudal1.teachers.rule import Kind
from cudal1.teachers.teachers import TEACHERS, Style
from cudal1.teachers.variants import Rewrite, places, variant

_REDRAWS = 4
"""Number of redraws when a teacher has something to rewrite and drew a copy."""
_INTENT = {
    Kind.FAST: "replace {} by a cheaper equivalent",
    Kind.MID: "write {} in another way",
    Kind.SLOW: "compute {} more carefully",
    Kind.WRONG: "simplify {}",
}


def rewrite(reference_source: str, *, teacher: str, attempt: int, seed: int) -> str:
    """Return a teacher's whole answer to a reference: equal arguments give equal answers.

    Raises:
        KeyError: when there is no such teacher.
    """
    profile = TEACHERS[teacher]
    rng = random.Random(content_id(teacher, reference_source, str(attempt), str(seed)))
    result = variant(reference_source, rng=rng, weights=profile.weights)
    if places(reference_source, operators=profile.weights.operators):
        for _ in range(_REDRAWS):
            if result.kind is not Kind.REFERENCE:
                break
            result = variant(reference_source, rng=rng, weights=profile.weights)
    return answer(result, rng=rng, style=profile.style)


def answer(result: Rewrite, *, rng: random.Random, style: Style) -> str:
    """Return a variant as the text of an answer."""
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
