"""What the policy acts in during stage 3: prompts from the row's diary, rewards from the bench.

The same loop as stage `rl` of the pipeline (`tasks.rl`), on this experiment's memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found, Judged
from benchmarks.ablation.sampling import Asked, ask
from cudal1.contrast import Sampling
from cudal1.exemplar import Birth
from cudal1.params import RlParams
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.reward import Smoother


class ContrastiveWorld:
    """An `Environment` of `cudal1.train.grpo`."""

    judges_meanwhile = False

    def __init__(
        self, problems: Sequence[Problem], bench: Bench, diary: Diary, seeds: Diary,
        knobs: RlParams, *, max_tokens: int,
        num_tokens: Callable[[Sequence[dict[str, str]]], int], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._problems = {problem.id: problem for problem in problems}
        self._bench = bench
        self._diary = diary
        self._seeds = seeds
        self._knobs = knobs
        self._max_tokens = max_tokens
        self._num_tokens = num_tokens
        self._say = say
        self._asked: dict[str, Asked] = {}
        self._smoother = Smoother(
            knobs.smooth_scope, k=knobs.smooth_k, window=knobs.smooth_window,
            refresh=knobs.smooth_refresh, log_scale=knobs.smooth_log,
        )  # fmt: skip

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """The group's prompt, from what was found before this step."""
        self._bench.check_time()
        knobs, problem = self._knobs, self._problems[problem_id]
        rng = random.Random(content_id(str(knobs.seed), problem_id, str(step)))
        is_plain = rng.random() < knobs.plain_share
        births: list[Birth] = []
        if not is_plain and knobs.sampling is not Sampling.NONE:
            births = self._seeds.births(problem_id) + self._diary.births(problem_id)
        asked = self._asked[problem_id] = ask(
            problem, births, self._bench.memory, knobs, at_round=step, rng=rng,
            sampling=Sampling.NONE if is_plain else knobs.sampling,
            max_tokens=self._max_tokens, num_tokens=self._num_tokens,
        )  # fmt: skip
        return asked.prompt.as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Nothing: the judge's device is the policy's."""

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Smoothed rewards of a batch of answers, judged problem by problem."""
        before = self._bench.num_judged
        judged: list[Judged | None] = [None] * len(texts)
        for index in sorted(range(len(texts)), key=lambda i: problem_ids[i]):
            judged[index] = self._bench.score(self._problems[problem_ids[index]], texts[index])
        found = [
            self._found(problem_id, each, step)
            for problem_id, each in zip(problem_ids, judged, strict=True)
        ]
        self._diary.add(f"step {step}", found)
        raw = [each.score for each in found]
        self._say(
            f"step {step} reward {fmean(raw):.3f} success {fmean(r > 0 for r in raw):.2f} "
            f"best {max(raw):.2f} exemplars {fmean(e.with_exemplars for e in found):.1f} "
            f"judged {self._bench.num_judged - before} of {len(raw)}"
        )
        return list(self._smoother.smooth(raw, problem_ids))

    def state(self) -> dict[str, Any]:
        """The smoother's statistics; everything else is in files."""
        return self._smoother.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`."""
        self._smoother.restore(dict(state))

    def _found(self, problem_id: str, judged: Judged | None, step: int) -> Found:
        asked = self._asked[problem_id]
        return Found(
            problem_id=problem_id, candidate_id=None if judged is None else judged.candidate_id,
            score=0.0 if judged is None else judged.score, born=step, island=asked.island,
            with_exemplars=len(asked.prompt.exemplar_ids), num_tokens=asked.num_tokens,
        )  # fmt: skip
