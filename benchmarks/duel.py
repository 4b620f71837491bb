"""Estimate how often a night would promote: duels drawn from answers that policies really gave.

python -m benchmarks.duel [--duels 400]

Reads results/learning.json: rewards of each policy's answers to forty held-out problems. A duel
draws problems with replacement, and for each problem as many answers of either policy as
params.yaml says, with its limits. The duel is checked after each ten pairs, where stage `duel`
checks after each pair.

"rl -> rl" gives both roles to one policy, so that neither is better. In "skewed", four pairs in
five are won by a little, and the fifth is lost by so much that neither is better. A count of wins
takes this for a gain.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

from benchmarks.arguments import Parser
from cudal1.selection.duel import Outcome, nights_alpha, verdict_of
from cudal1.settings.params import DuelParams, Params

RESULTS = Path(__file__).parent / "results"
MATCHES = (("base", "sft"), ("sft", "r1"), ("sft", "rl"), ("r2", "rl"), ("rl", "r2"), ("rl", "rl"))
CHALLENGES = (1, 5, 30)
LOOK_EVERY = 10
Draw = Callable[[random.Random], float]


def main() -> None:
    """Print a table and write results/duel.json."""
    parser = Parser(prog="python -m benchmarks.duel", description=__doc__)
    parser.add_argument("--duels", type=int, default=400, help="of each kind")
    num_duels = parser.parse_args().duels
    section = Params.load(Path("params.yaml")).duel
    policies = json.loads((RESULTS / "learning.json").read_text())["policies"]
    draws: dict[str, tuple[float, Draw]] = {}
    for champion, challenger in MATCHES:
        old, new = policies[champion]["rewards"], policies[challenger]["rewards"]
        draws[f"{champion} -> {challenger}"] = (
            fmean(map(fmean, capped(new, section))) - fmean(map(fmean, capped(old, section))),
            drawn(capped(old, section), capped(new, section), section),
        )
    draws["skewed"] = (0.0, lambda rng: 0.25 if rng.random() < 0.8 else -1.0)
    found = {
        name: {"gain": gain, **measured(draw, section, num_duels)}
        for name, (gain, draw) in draws.items()
    }
    for name, row in found.items():
        print(f"{name:<12} {row}")
    (RESULTS / "duel.json").write_text(
        json.dumps({"params": section.model_dump(), "duels": num_duels, "matches": found}, indent=2)
        + "\n"
    )


def capped(rewards: Sequence[Sequence[float]], section: DuelParams) -> list[list[float]]:
    """Return rewards as a duel counts them."""
    return [[min(reward, section.max_reward) for reward in mine] for mine in rewards]


def drawn(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]], section: DuelParams
) -> Draw:
    """Return a draw of pairs: a random problem, and as many random answers of either policy."""

    def draw(rng: random.Random) -> float:
        index, count = rng.randrange(len(old)), section.num_samples
        return fmean(rng.choices(new[index], k=count)) - fmean(rng.choices(old[index], k=count))

    return draw


def measured(draw: Draw, section: DuelParams, num_duels: int) -> dict[str, object]:
    """Return shares of duels that promote, by number of earlier challenges, and their lengths."""
    rng, row = random.Random(1), dict[str, object]()
    for challenge in CHALLENGES:
        alpha = nights_alpha(section.alpha, challenge=challenge)
        ends = [fight(draw, rng, section, alpha) for _ in range(num_duels)]
        better = [num for outcome, num in ends if outcome is Outcome.BETTER]
        row[f"promoted_at_{challenge}"] = len(better) / num_duels
        row[f"problems_at_{challenge}"] = median(better) if better else None
    return row


def fight(draw: Draw, rng: random.Random, section: DuelParams, alpha: float) -> tuple[Outcome, int]:
    """Return the outcome of one duel, and the number of its problems."""
    pairs: list[float] = []
    while True:
        pairs += [draw(rng) for _ in range(LOOK_EVERY)]
        found = verdict_of(
            pairs, alpha=alpha, limit=section.max_reward, is_last=len(pairs) >= section.num_problems
        )
        if found is not None:
            return found.outcome, found.num_pairs


if __name__ == "__main__":
    main()
