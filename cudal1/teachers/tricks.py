"""Answers that go wrong as a whole: cheats that pretend to be fast, and code that does not run.

Language models write both. The pipeline must refuse them, and the embedded policy must have seen
that they exist; none is ever used as training data after a verdict.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

from cudal1.teachers.frame import assembled
from cudal1.teachers.program import Program

CHEATS: Final = ("cache_first", "cache_pointer", "empty", "low_precision", "unchanged", "zeros")


def cheat(program: Program, body: list[str], name: str) -> str:
    """Return the source of a cheating `ModelNew`, from an honest body of forward."""
    first = program.arguments[0] if program.arguments else "x"
    *before, last = body
    if not last.startswith("return ") or any("return " in line for line in before):
        before, last, name = [], "", "unchanged"
    result = last.removeprefix("return ")
    match name:
        case "cache_first":
            lines = _guarded(
                'if not hasattr(self, "saved"):',
                [*before, f"self.saved = {result}"],
                "return self.saved",
            )
        case "cache_pointer":
            kept = [*before, f"self.saved = {result}", "self.key = key"]
            lines = [
                f"key = {first}.data_ptr()",
                *_guarded('if getattr(self, "key", None) != key:', kept, "return self.saved"),
            ]
        case "empty":
            lines = [f"return torch.empty_like({first})"]
        case "zeros":
            lines = [f"return torch.zeros_like({first})"]
        case "low_precision":
            opening = f"with torch.autocast({first}.device.type, dtype=torch.bfloat16):"
            lines = _guarded(opening, [*before, f"y = {result}"], "return y.float()")
        case _:
            lines = [f"return {first}"]
    return assembled(program, lines)


def _guarded(opening: str, inner: list[str], closing: str) -> list[str]:
    return [opening, *("    " + line.replace("\n", "\n    ") for line in inner), closing]


def _truncated(source: str, rng: random.Random) -> str:
    start = source.find("def forward")
    return source[: rng.randrange(max(start, 1), max(len(source) - 3, start + 2))]


def _renamed_use(source: str, rng: random.Random) -> str:
    head, separator, forward = source.rpartition("def forward")
    uses = list(re.finditer(r"(?<![\w.])(x|e|m|mean|var|y)(?=[ ,)\].])", forward.partition(":")[2]))
    if not uses:
        return source.replace("return ", "return result + ", 1)
    offset = len(forward.partition(":")[0]) + 1
    use = rng.choice(uses)
    return (
        head + separator + forward[: offset + use.start()] + "out" + forward[offset + use.end() :]
    )


def _missing_import(source: str, rng: random.Random) -> str:
    lines = source.split("\n")
    imports = [number for number, line in enumerate(lines) if line.startswith(("import ", "from "))]
    del lines[rng.choice(imports[-2:]) if imports else 0]
    return "\n".join(lines)


def _missing_return(source: str, rng: random.Random) -> str:
    head, _, result = source.rpartition("return ")
    return f"{head}y = {result}"


def _unbalanced(source: str, rng: random.Random) -> str:
    places = [m.start() for m in re.finditer(r"\)", source)]
    place = rng.choice(places[-6:]) if places else 0
    return source[:place] + source[place + 1 :]


def _renamed_attribute(source: str, rng: random.Random) -> str:
    head, separator, forward = source.rpartition("def forward")
    uses = list(re.finditer(r"self\.(\w+)", forward))
    if not uses:
        return _renamed_use(source, rng)
    use = rng.choice(uses)
    return (
        head + separator + forward[: use.start()] + f"self.{use.group(1)}_t" + forward[use.end() :]
    )


DAMAGES: Final[tuple[Callable[[str, random.Random], str], ...]] = (
    _truncated,
    _renamed_use,
    _missing_import,
    _missing_return,
    _unbalanced,
    _renamed_attribute,
)


def damage(source: str, rng: random.Random) -> str:
    """Return a source that does not run, in one of the ways in which answers do not run."""
    return rng.choice(DAMAGES)(source, rng)
