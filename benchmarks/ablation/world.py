"""Define the environment of stage 3: prompts from the row's diary, rewards from the bench.

This is the loop of stage `rl` of the pipeline (`tasks.rl`), on this experiment's memory. It tells
the parts of a step apart by the time of each call of the trainer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found, Judged
from benchmarks.ablation.sampling import Asked, ask
from benchmarks.ablation.steps import Numbers, Steps
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.selection.contrast import Sampling
from cudal1.selection.exemplar import Birth
from cudal1.selection.reward import Smoother
from cudal1.settings.rl_params import RlParams
from cudal1.verdict import Status


class ContrastiveWorld:
    """An `Environment` of `cudal1.train.grpo`."""

    judges_meanwhile = False

    def __init__(
        self,
        problems: Sequence[Problem],
        bench: Bench,
        diary: Diary,
        seeds: Diary,
        steps: Steps,
        knobs: RlParams,
        *,
        max_tokens: int,
        num_tokens: Callable[[Sequence[dict[str, str]]], int],
        say: Callable[[str], None],
    ) -> None:
        self._problems = {problem.id: problem for problem in problems}
        self._bench = bench
        self._diary = diary
        self._seeds = seeds
        self._steps = steps
        self._knobs = knobs
        self._max_tokens = max_tokens
        self._num_tokens = num_tokens
        self._say = say
        self._asked: dict[str, Asked] = {}
        self._step: int | None = None
        """The current step."""
        self._numbers: Numbers = {}
        """Numbers of the current step so far."""
        self._since = 0.0
        self._smoother = Smoother(
            knobs.smooth_scope,
            k=knobs.smooth_k,
            window=knobs.smooth_window,
            refresh=knobs.smooth_refresh,
            log_scale=knobs.smooth_log,
        )

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return the group's prompt, from what was found before this step."""
        self._bench.check_time()
        if step != self._step:
            self._step, self._numbers, self._since = step, {}, time.monotonic()
        knobs, problem = self._knobs, self._problems[problem_id]
        rng = random.Random(content_id(str(knobs.seed), problem_id, str(step)))
        is_plain = rng.random() < knobs.plain_share
        births: list[Birth] = []
        if not is_plain and knobs.sampling is not Sampling.NONE:
            births = self._seeds.births(problem_id) + self._diary.births(problem_id)
        asked = self._asked[problem_id] = ask(
            problem,
            births,
            self._bench.memory,
            knobs,
            at_round=step,
            rng=rng,
            sampling=Sampling.NONE if is_plain else knobs.sampling,
            max_tokens=self._max_tokens,
            num_tokens=self._num_tokens,
        )
        self._lap("prompts_s")
        return asked.prompt.as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Note only that answers have been sampled: the judge's device is the policy's."""
        self._lap("sampling_s")

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return smoothed rewards of a batch of answers, judged problem by problem."""
        self._lap("updating_s")
        judged_before, reused_before = self._bench.num_judged, self._bench.num_reused
        judged: list[Judged | None] = [None] * len(texts)
        for index in sorted(range(len(texts)), key=lambda i: problem_ids[i]):
            judged[index] = self._bench.score(self._problems[problem_ids[index]], texts[index])
        found = [
            self._found(problem_id, each, step)
            for problem_id, each in zip(problem_ids, judged, strict=True)
        ]
        self._diary.add(f"step {step}", found)
        mine = numbers(found, judged, num_reused=self._bench.num_reused - reused_before)
        self._say(
            f"step {step} reward {mine['reward_raw']:.3f} success {mine['success']:.2f} "
            f"best {mine['best']:.2f} with exemplars {mine['with_exemplars']:.2f} "
            f"judged {self._bench.num_judged - judged_before} of {len(found)}"
        )
        self._lap("judging_s")
        self._numbers |= mine
        return list(self._smoother.smooth([each.score for each in found], problem_ids))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Note the trainer's numbers of a finished step, with the numbers that are known here.

        Seconds: building prompts; sampling; judging; updating, with the reference's probabilities.
        Of further updates on the same answers the trainer's numbers alone are noted.
        """
        if self._numbers:
            self._lap("updating_s")
        self._steps.log(step, {**values, **self._numbers})
        self._numbers = {}

    def state(self) -> dict[str, Any]:
        """Return the smoother's statistics; everything else is in files."""
        return self._smoother.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`."""
        self._smoother.restore(dict(state))

    def _lap(self, part: str) -> None:
        """Add the time since the last lap to a part."""
        now = time.monotonic()
        self._numbers[part] = self._numbers.get(part, 0.0) + now - self._since
        self._since = now

    def _found(self, problem_id: str, judged: Judged | None, step: int) -> Found:
        asked = self._asked[problem_id]
        return Found(
            problem_id=problem_id,
            candidate_id=None if judged is None else judged.candidate_id,
            score=0.0 if judged is None else judged.score,
            born=step,
            island=asked.island,
            exemplar_ids=asked.prompt.exemplar_ids,
            num_tokens=asked.num_tokens,
        )


def numbers(found: Sequence[Found], judged: Sequence[Judged | None], *, num_reused: int) -> Numbers:
    """Return a batch of answers in numbers: shares, except for rewards and tokens.

    `reused` is a share of the answers with code: known from any row, or from this step before a
    kill. `copied` is a share of the answers that were shown exemplars, and absent where none was.
    """
    raw = [each.score for each in found]
    shown = [each for each in found if each.exemplar_ids]
    with_code = [each for each in judged if each is not None]
    copied = {"copied": fmean(each.is_copy for each in shown)} if shown else {}
    return {
        "reward_raw": fmean(raw),
        "reward_raw_std": pstdev(raw),
        "best": max(raw),
        "success": fmean(reward > 0 for reward in raw),
        "hacked": sum(each.status == Status.HACKED for each in with_code) / len(found),
        "no_code": 1 - len(with_code) / len(found),
        "reused": num_reused / max(1, len(with_code)),
        "with_exemplars": len(shown) / len(found),
        **copied,
        "prompt_tokens": fmean(each.num_tokens for each in found),
    }
