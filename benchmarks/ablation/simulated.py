"""A judge with made-up speeds, to rehearse the experiment where there is no GPU.

NOT a measurement, and nothing that it says may be claimed of a device. It knows which source is
which by writing out every variant of a problem that the rewriter can make; any other source fails.
A problem's time is the sum of its stages' times; a stage's gain belongs to (operation, rewrite),
the same for all problems, except a knob's, whose best value is drawn for each problem.
"""

from __future__ import annotations

import ast
import itertools
import random
from dataclasses import dataclass

from cudal1.candidate import Candidate
from cudal1.llm.rewriter import Kind, compose, places
from cudal1.llm.rewriter.places import Place
from cudal1.problem import Problem

GAINS = {Kind.FAST: (2.0, 6.0), Kind.MID: (0.8, 1.8), Kind.SLOW: (0.3, 0.7)}
KNOB_GAIN, KNOB_FALL = 6.0, 0.6
"""A knob's best value gains this much, its neighbours this share of it, and so on."""
NOISE = 0.02
DEAD_ZONE = 1.05
MAX_VARIANTS = 20_000


@dataclass(frozen=True)
class _Option:
    """One rewrite of one place: what it makes of the place's time; None: it is wrong."""

    index: int | None
    gain: float | None


class SimulatedJudge:
    """Scores by table."""

    def __init__(self, knobs: tuple[str, ...]) -> None:
        self._knobs = knobs
        self._tables: dict[str, dict[str, float]] = {}

    def judge(
        self, problem: Problem, candidate: Candidate, record: float | None
    ) -> tuple[str, float]:
        """Correct with its made-up speedup, or incorrect."""
        score = self.table(problem).get(_normal(candidate.source), 0.0)
        if score == 0.0:
            return "incorrect", 0.0
        noisy = score * random.Random(candidate.id).gauss(1.0, NOISE)
        return "correct", round(noisy, 3) if not 1 / DEAD_ZONE < noisy < DEAD_ZONE else 1.0

    def close(self) -> None:
        """Nothing is held."""

    def table(self, problem: Problem) -> dict[str, float]:
        """Every variant that the rewriter can make, with its speedup; 0 for a wrong one."""
        if problem.id not in self._tables:
            self._tables[problem.id] = self._table(problem)
        return self._tables[problem.id]

    def _table(self, problem: Problem) -> dict[str, float]:
        rng = random.Random(problem.id)
        found = places(problem.source)
        times = [rng.uniform(0.5, 1.5) for _ in found]
        options = [self._options(place, rng) for place in found]
        rest = 0.05 * sum(times)  # what no rewrite touches
        table: dict[str, float] = {}
        for chosen in itertools.islice(itertools.product(*options), MAX_VARIANTS):
            source = compose(problem.source, [option.index for option in chosen]).source
            gains = [option.gain for option in chosen]
            time = rest + sum(t / g for t, g in zip(times, gains, strict=True) if g)
            is_right = all(gain is not None for gain in gains)
            speed = (rest + sum(times)) / time if is_right else 0.0
            key = _normal(source)
            table[key] = max(speed, table.get(key, 0.0))
        return table

    def _options(self, place: Place, rng: random.Random) -> list[_Option]:
        offered = place.options
        knob = [
            n for n, option in enumerate(offered)
            if option.family in self._knobs and option.kind is Kind.MID
        ]  # fmt: skip
        best = rng.randrange(len(knob)) if knob else 0
        made = [_Option(None, 1.0)]
        for n, option in enumerate(offered):
            if option.kind is Kind.WRONG:
                made.append(_Option(n, None))
            elif n in knob:
                made.append(_Option(n, KNOB_GAIN * KNOB_FALL ** abs(knob.index(n) - best)))
            else:
                of_rewrite = random.Random(f"{option.family}/{option.name}")
                made.append(_Option(n, of_rewrite.uniform(*GAINS[option.kind])))
        return made


def _normal(source: str) -> str:
    """Equal for sources that differ in layout only; "" for what is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return ""
