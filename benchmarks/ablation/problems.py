"""Draw the problems of the experiment: operations with a knob, and others between them.

Three groups share no problem. Validation and held-out problems are of reserved combinations, which
neither pretraining nor training has seen. Settings are chosen on validation problems alone.
"""

from __future__ import annotations

import random

from benchmarks.ablation.plan import Group, ProblemsPlan
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.suite import generator


def draw(plan: ProblemsPlan, device_class: DeviceClass) -> dict[Group, list[Problem]]:
    """Return each group's problems; equal arguments give equal ones."""
    found: dict[Group, list[Problem]] = {}
    taken: set[str] = set()
    for group in (Group.HELDOUT, Group.VALIDATION, Group.TRAIN):
        mine = _draw(plan, device_class, group, taken)
        taken |= {problem.name for problem in mine}
        found[group] = mine
    return found


def _draw(
    plan: ProblemsPlan, device_class: DeviceClass, group: Group, taken: set[str]
) -> list[Problem]:
    """Return as many problems as asked for, without combinations of another group."""
    seed = plan.seeds[group]
    rng = random.Random(f"{seed}/{group.value}")
    split = Split.TRAIN if group is Group.TRAIN else Split.HELDOUT
    found: dict[str, Problem] = {}
    for index in range(200 * plan.counts[group]):
        if len(found) == plan.counts[group]:
            break
        names = _names(plan, rng)
        if generator.is_reserved(names) != (split is Split.HELDOUT) or "_".join(names) in taken:
            continue
        problem = generator.generate(
            seed,
            index,
            device_class=device_class,
            num_stages=len(names),
            split=split,
            families=names,
        )
        found[problem.id] = problem
    return list(found.values())


def _names(plan: ProblemsPlan, rng: random.Random) -> tuple[str, ...]:
    names = rng.sample(plan.others, plan.num_others + plan.num_knobs)
    for place in generator.apart(rng, len(names), plan.num_knobs):
        names[place] = rng.choice(plan.knobs)
    return tuple(names)
