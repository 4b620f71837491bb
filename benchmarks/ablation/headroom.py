"""Find out whether there is something to discover: time the rewriter's variants of each problem.

python -m benchmarks.ablation.headroom --plan gpu --out headroom.json

Run this before anything is trained. A problem with fast forms that gain nothing, or with a knob
that has the same best value everywhere, teaches nothing. The sources are the rewriter's, so they
run in this process, without sandbox. The table's speedups are certified by the harness.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation import plan as plans
from benchmarks.ablation import problems as drawing
from benchmarks.ablation.plan import Group, Plan
from benchmarks.arguments import Parser
from cudal1.problem import DeviceClass, Problem
from cudal1.teachers import Kind, compose, places
from cudal1.teachers.rules.knobs import FAMILIES as KNOBS

REPEATS, CALLS = 5, 4
MAX_ERROR = 2e-6
"""Relative L2 distance to the reference that the strict class of a verdict allows."""


def main() -> None:
    """Time every problem's variants, print a line each, and save all."""
    parser = Parser(prog="python -m benchmarks.ablation.headroom")
    parser.add_argument("--plan", default="gpu")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    plan = plans.load(given.plan)
    drawn = drawing.draw(plan.problems, plan.device)
    found: list[dict[str, Any]] = []
    best: Counter[str] = Counter()
    for group in (Group.TRAIN, Group.VALIDATION):  # held-out problems are left out
        for problem in drawn[group]:
            found.append(look_at(problem, plan))
            best.update(f"{knob['family']}: {knob['best']}" for knob in found[-1]["knobs"])
            print(line(found[-1]), flush=True)
    for name, count in sorted(best.items()):
        print(f"best form {name!r} in {count}")
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def look_at(problem: Problem, plan: Plan) -> dict[str, Any]:
    """Return times in µs: the reference, fast forms, each knob's forms with them, and all."""
    all_places = places(problem.source)
    chosen = [_first(place.options, Kind.FAST) for place in all_places]
    run = Timer(problem, plan.device)
    reference_us, _ = run.us([None] * len(chosen))
    fast_us, _ = run.us(chosen)
    knobs: list[dict[str, Any]] = []
    best = list(chosen)
    for n, place in enumerate(all_places):
        if place.families[0] not in KNOBS:
            continue
        forms = [None, *(k for k, o in enumerate(place.options) if o.kind is Kind.MID)]
        seen = {k: run.us([*chosen[:n], k, *chosen[n + 1 :]]) for k in forms}
        right = {k: us for k, (us, error) in seen.items() if error <= MAX_ERROR}
        best[n] = min(right, key=lambda k: right[k]) if right else None
        names = {k: "reference" if k is None else place.options[k].name for k in forms}
        knobs.append(
            {
                "family": place.families[0],
                "best": names[best[n]],
                "forms_us": {names[k]: us for k, (us, _) in seen.items()},
                "errors": {names[k]: error for k, (_, error) in seen.items()},
            }
        )
    return {
        "problem": problem.name,
        "reference_us": reference_us,
        "fast_us": fast_us,
        "knobs": knobs,
        "best_us": run.us(best)[0],
    }


def line(seen: dict[str, Any]) -> str:
    """Return one problem's times as a line for people."""
    reference = seen["reference_us"]
    knobs = "; ".join(
        f"{knob['family']} {' '.join(f'{reference / us:.2f}' for us in knob['forms_us'].values())}"
        for knob in seen["knobs"]
    )
    errors = [error for knob in seen["knobs"] for error in knob["errors"].values()]
    return (
        f"{seen['problem']:<48} {reference:8.0f} us; "
        f"others fast {reference / seen['fast_us']:5.2f}; {knobs}; "
        f"all best {reference / seen['best_us']:.2f}; "
        f"too inexact {sum(error > MAX_ERROR for error in errors)}"
    )


def _first(options: Sequence[Any], kind: Kind) -> int | None:
    return next((n for n, option in enumerate(options) if option.kind is kind), None)


class Timer:
    """A timer of variants of one problem with the same weights and input."""

    def __init__(self, problem: Problem, device_class: DeviceClass) -> None:
        import torch

        self._torch = torch
        self._problem = problem
        self._device = "cuda" if device_class is DeviceClass.CUDA else "cpu"
        torch.manual_seed(0)
        scope = _scope(problem.source)
        self._arguments = scope["get_init_inputs"]()
        self._model = scope["Model"](*self._arguments).to(self._device)
        self._inputs = [each.to(self._device) for each in scope["get_inputs"]()]
        with torch.inference_mode():
            self._expected = self._model(*self._inputs)

    def us(self, choices: Sequence[int | None]) -> tuple[float, float]:
        """Return the median µs of a call, and the relative L2 distance to the reference."""
        scope = _scope(compose(self._problem.source, choices).source)
        module = scope["ModelNew"](*self._arguments).to(self._device)
        module.load_state_dict(self._model.state_dict())
        with self._torch.inference_mode():
            result = module(*self._inputs)
            error = (result - self._expected).norm() / self._expected.norm()
            times = [self._once(module) for _ in range(REPEATS + 1)][1:]
        return statistics.median(times), float(error)

    def _once(self, module: Callable[..., Any]) -> float:
        self._synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            module(*self._inputs)
        self._synchronize()
        return (time.perf_counter() - started) / CALLS * 1e6

    def _synchronize(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


def _scope(source: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(compile(source, "variant", "exec"), scope)
    return scope


if __name__ == "__main__":
    main()
