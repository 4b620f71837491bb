"""Simulate the stop rule on noise alone, and on true gains; no device is needed.

python -m benchmarks.timing.stop_rule [--runs 3000] [--seed 7]

Simulated bursts drift, depend on the one before (AR(1)) and are interrupted now and then. Those
settings are assumptions, so only the comparison of rules counts (docs/timing.md). The rules are
ours as shipped for a CPU and for GPUs, there with pairs for clear gains, and the paper's, with a
window cut to `PAPER_PAIRS`.
"""

from __future__ import annotations

import json
import math
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name
from cudal1.harness.timing import rule, statistics
from cudal1.measurement import Role
from cudal1.protocol import EvalProtocol, Rule
from cudal1.settings import protocols
from cudal1.settings.params import Params

RESULTS = Path(__file__).parents[1] / "results"
PAPER_PAIRS = 200
"""Pairs, of some 60,000 that 20 minutes hold; more would only steady the paper's estimate."""
MEMORY = 0.7
"""Coefficient of the AR(1) process, from burst to burst."""
GAINS = (1.0, 1.02, 1.05, 1.1, 1.5, 3.0)
GPU = "cuda"
FEWER = 10
"""Factor by which the power has fewer runs than the rate of false certificates, which needs more.
"""


@dataclass(frozen=True)
class Noise:
    """The disturbances of a simulated device's bursts."""

    name: str
    sigma: float
    """New noise of a burst's time, as a share of it."""
    drift: float
    """Standard deviation over runs of each burst's slowdown over the burst before."""
    spikes: float
    """Share of bursts that are interrupted, for as long again on average."""


NOISES = (
    Noise("quiet", 0.002, 0.0002, 0.002),
    Noise("ordinary", 0.01, 0.001, 0.01),
    Noise("noisy", 0.05, 0.002, 0.05),
)


@dataclass(frozen=True)
class Cell:
    """A rule's results on many simulated candidates that are equally fast."""

    rule: str
    noise: str
    gain: float
    """True speedup."""
    runs: int
    rewarded: float
    """Share that earned more than 1.00; at a gain of 1 these are false."""
    above_1_01: float
    """Share that earned more than 1.01."""
    too_much: float
    """Share that earned more than the true speedup."""
    mean_reward: float
    median_quads: float
    covered: float | None
    """Share of intervals, where there is one, that hold the true speedup."""


class Device:
    """A simulated device, which gives the times of bursts, one after the other."""

    def __init__(self, noise: Noise, rng: random.Random) -> None:
        self._noise, self._rng = noise, rng
        self._state, self._count = 0.0, 0
        self._drift = rng.gauss(0, noise.drift)

    def burst_us(self, plain_us: float) -> float:
        """Return the time of a burst that would take `plain_us` undisturbed."""
        self._state = MEMORY * self._state + self._rng.gauss(0, self._noise.sigma)
        self._count += 1
        spike = self._rng.expovariate(1) if self._rng.random() < self._noise.spikes else 0.0
        return plain_us * math.exp(self._state + self._drift * self._count) * (1 + spike)


def main() -> None:
    """Simulate, print a table, and write results/stop_rule.json."""
    parser = Parser(prog="python -m benchmarks.timing.stop_rule", description=__doc__)
    parser.add_argument("--runs", type=int, default=3000, help="of each null test")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    compared = rules(Params.load(Path("params.yaml")).protocol)
    started = time.perf_counter()
    cells: list[Cell] = []
    print(
        f"{'rule':8} {'noise':9} {'gain':>5} {'runs':>5} {'> 1.00':>7} {'> 1.01':>7} "
        f"{'> true':>7} {'reward':>7} {'quads':>6} {'covered':>8}"
    )
    for name, protocol in compared.items():
        for noise in NOISES:
            for gain in GAINS:
                runs = given.runs if gain == 1 else given.runs // FEWER
                cells.append(simulated(name, protocol, noise, gain, runs=runs, seed=given.seed))
                print(row(cells[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stop_rule.json").write_text(
        json.dumps(
            {
                "runs": given.runs,
                "seed": given.seed,
                "took_s": round(time.perf_counter() - started, 1),
                "device": "simulated",
                "cpu": cpu_name(),
                "measured": time.strftime("%Y-%m-%d"),
                "versions": {"python": platform.python_version()},
                "protocols": {
                    name: each.model_dump(mode="json") for name, each in compared.items()
                },
                "noises": [asdict(noise) for noise in NOISES],
                "cells": [asdict(cell) for cell in cells],
            },
            indent=2,
        )
        + "\n"
    )


def rules(shipped: EvalProtocol) -> dict[str, EvalProtocol]:
    """Return the protocols to compare, by name; `shipped` is that of params.yaml."""
    paper = {"rule": Rule.PAPER, "window_s": 1200.0, "max_bucket_variance": 0.005}
    return {"shipped": shipped, GPU: protocols.load(GPU), "paper": shipped.model_copy(update=paper)}


def simulated(
    name: str, protocol: EvalProtocol, noise: Noise, gain: float, *, runs: int, seed: int
) -> Cell:
    """Let one rule judge `runs` candidates that are `gain` times as fast as the reference."""
    rng = random.Random(f"{seed} {name} {noise.name} {gain}")
    series = [
        timed(Device(noise, rng), protocol, gain, rng, has_pairs=name == GPU) for _ in range(runs)
    ]
    readings = [rule.read(ratios, protocol) for ratios in series]
    rewards = [reading.certified for reading in readings]
    bounds = [(r.lower, r.upper) for r in readings if r.lower is not None and r.upper is not None]
    return Cell(
        rule=name,
        noise=noise.name,
        gain=gain,
        runs=runs,
        rewarded=share([reward > 1 for reward in rewards]),
        above_1_01=share([reward > 1.01 for reward in rewards]),
        too_much=share([reward > gain for reward in rewards]),
        mean_reward=fmean(rewards),
        median_quads=median(len(ratios) for ratios in series),
        covered=share([low <= gain <= high for low, high in bounds]) if bounds else None,
    )


def timed(
    device: Device, protocol: EvalProtocol, gain: float, rng: random.Random, *, has_pairs: bool
) -> list[float]:
    """Return a measurement's log-ratios, stopped by its rule; `has_pairs` allows pairs."""
    ratios: list[float] = []
    plain_us = {Role.REFERENCE: gain, Role.CANDIDATE: 1.0}
    while not is_done(ratios, protocol):
        times: dict[Role, list[float]] = {Role.REFERENCE: [], Role.CANDIDATE: []}
        in_pairs = has_pairs and rule.is_clear(ratios)
        for role in rule.draw_order(rng, protocol, in_pairs=in_pairs):
            times[role].append(device.burst_us(plain_us[role]))
        ratios.append(statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE]))
    return ratios


def is_done(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Return the rule's answer; the paper's window is a number of pairs here."""
    if protocol.rule is Rule.PAPER:
        return len(ratios) >= PAPER_PAIRS
    return rule.is_done(ratios, 0.0, protocol)


def share(claims: Sequence[bool]) -> float:
    """Return the share of claims that hold."""
    return sum(claims) / len(claims)


def row(cell: Cell) -> str:
    """Return one line of the table."""
    covered = "" if cell.covered is None else f"{cell.covered:8.1%}"
    return (
        f"{cell.rule:8} {cell.noise:9} {cell.gain:5.2f} {cell.runs:5} {cell.rewarded:7.2%} "
        f"{cell.above_1_01:7.2%} {cell.too_much:7.2%} {cell.mean_reward:7.3f} "
        f"{cell.median_quads:6.0f} {covered}"
    )


if __name__ == "__main__":
    main()
