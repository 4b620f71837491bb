"""Stage `rl` (stage 3): contrastive reinforcement learning.

Before each group is sampled, its prompt is built from what earlier stages and steps have found: by
default, two candidates of the problem from different score buckets. Each answer is extracted,
judged and rewarded with its certified speedup, smoothed (equation 6); GRPO does the rest (equations
4 and 5). What succeeds may be an exemplar in a later step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from cudal1.candidate import Completion
from cudal1.contrast import Choice, choose
from cudal1.errors import ConfigError
from cudal1.exemplar import Birth
from cudal1.ledger import Ledger
from cudal1.problem import Problem, Split
from cudal1.prompt import Prompt, contrastive_prompt
from cudal1.record import content_id
from cudal1.reward import RollingSmoother, speed_reward, success_reward
from cudal1.tracking import MODEL_NAME, NEWEST, register
from cudal1.train.grpo import train_grpo
from cudal1.train.policy import Sampler
from tasks.examine import examine, fitting_problems
from tasks.judging import Bench, bench, device_facts, keep_completion
from tasks.stage import DATA, Stage, main
from tasks.training import Steps, training

ATTEMPTS = 10_000
"""A completion's attempt is its step times this, and its place in the step's batch."""


def reinforce(stage: Stage) -> Mapping[str, float | int]:
    """data/policy/INIT → data/policy/rl, with its marks on held-out problems."""
    section = stage.params.rl
    init, out = DATA / "policy" / section.init, DATA / "policy" / "rl"
    problems = fitting_problems(stage, Sampler(init), Split.TRAIN, count=section.num_problems)
    if len(problems) < section.prompts_per_step:
        raise ConfigError(
            f"{stage.name}: {len(problems)} problems for {section.prompts_per_step} prompts a "
            "step; raise rl.num_problems or policy.max_prompt_tokens, or lower rl.prompts_per_step"
        )
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with (
            bench(ledger, stage.params) as judge,
            training(stage, ledger, steps=section.steps) as steps,
        ):
            world = ContrastiveWorld(stage, ledger, judge, problems, steps)
            train_grpo(
                init, out, [problem.id for problem in problems], world, work=stage.work,
                steps=section.steps, prompts_per_step=section.prompts_per_step,
                group_size=section.group_size, learning_rate=section.learning_rate,
                beta=section.beta, epsilon=section.epsilon,
                updates_per_batch=section.updates_per_batch, temperature=section.temperature,
                top_p=section.top_p, max_new_tokens=stage.params.policy.max_new_tokens,
                checkpoint_every=section.checkpoint_every, seed=section.seed,
                scale=stage.params.scale, vllm_server=section.vllm_server, on_log=steps.log,
            )  # fmt: skip
        marks = examine(stage, ledger, out)
        means = _mean_rewards(ledger, stage, num_problems=len(problems))
        ledger.export()
    register(DATA, MODEL_NAME, out, alias=NEWEST)
    return {
        **means, "num_judged": judge.num_judged, "num_reused": judge.num_reused, **marks,
    }  # fmt: skip


class ContrastiveWorld:
    """What the trainer acts in: prompts from the ledger, rewards from the bench."""

    judges_meanwhile = False

    def __init__(
        self, stage: Stage, ledger: Ledger, judge: Bench, problems: Sequence[Problem], steps: Steps
    ) -> None:
        section = stage.params.rl
        self._stage = stage
        self._section = section
        self._ledger = ledger
        self._judge = judge
        self._steps = steps
        self._problems = {problem.id: problem for problem in problems}
        self._prompts: dict[str, Prompt] = {}
        self._islands: dict[str, int | None] = {}
        self._smoother = RollingSmoother(
            k=section.smooth_k, window=section.smooth_window, refresh=section.smooth_refresh,
            log_scale=section.smooth_log,
        )  # fmt: skip

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """The group's prompt, from the exemplars that exist when the step begins."""
        section, problem = self._section, self._problems[problem_id]
        rng = random.Random(content_id(str(section.seed), problem_id, str(step)))
        choice = Choice[Birth]()
        if rng.random() >= section.plain_share:
            known = self._ledger.births(
                problem_id, device_kind=self._judge.device.kind,
                protocol_id=self._judge.protocol.id, stages=["filter", self._stage.name],
                attempts_per_step=ATTEMPTS,
            )  # fmt: skip
            choice = choose(known, section, sampling=section.sampling, at_round=step, rng=rng)
        prompt = contrastive_prompt(
            problem, self._ledger.shown(choice.exemplars), style=self._stage.params.policy.prompts,
            facts=device_facts(self._stage.params),
        )  # fmt: skip
        self._prompts[problem_id], self._islands[problem_id] = prompt, choice.island
        return prompt.as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Leave the answers to `score`: the device is the policy's own."""

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """The smoothed rewards of a batch of answers; failures earn what 0 is smoothed to."""
        verdicts, ids = [], []
        for index, (problem_id, text) in enumerate(zip(problem_ids, texts, strict=True)):
            completion = self._completion(problem_id, text, step, index)
            candidate = keep_completion(self._ledger, completion)
            problem = self._problems[problem_id]
            verdicts.append(None if candidate is None else self._judge.verdict(problem, candidate))
            ids.append(completion.id)
        raw = [speed_reward(verdict) for verdict in verdicts]
        smoothed = self._smoother.smooth(raw)
        self._ledger.add_rewards(step, list(zip(ids, raw, smoothed, strict=True)))
        self._steps.log(step + 1, {  # after it, as the trainer counts
            "reward_raw": fmean(raw),
            "success": fmean(success_reward(verdict) for verdict in verdicts),
            "exemplars": fmean(len(self._prompts[p].exemplar_ids) for p in problem_ids),
        })  # fmt: skip
        return list(smoothed)

    def state(self) -> dict[str, Any]:
        """The smoother's statistics; everything else is in the ledger."""
        return self._smoother.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._smoother.restore(state)

    def _completion(self, problem_id: str, text: str, step: int, index: int) -> Completion:
        prompt = self._prompts[problem_id]
        return Completion(
            id=content_id(self._stage.name, str(step), str(index), prompt.id, text),
            stage=self._stage.name, provider="policy", problem_id=problem_id,
            prompt_id=prompt.id, template_id=prompt.template_id, attempt=step * ATTEMPTS + index,
            text=text, finish_reason="sampled", exemplar_ids=prompt.exemplar_ids,
            island=self._islands[problem_id],
        )  # fmt: skip


def _mean_rewards(ledger: Ledger, stage: Stage, *, num_problems: int) -> dict[str, float]:
    """Mean raw reward over the first and the last epoch: the same problems, so comparable."""
    rows = ledger.query("steps", stage=stage.name).to_dicts()
    rewards = [row["value"] for row in rows if row["name"] == "reward_raw"]
    epoch = max(1, num_problems // stage.params.rl.prompts_per_step)
    return {
        "reward_first_epoch": fmean(rewards[:epoch]),
        "reward_last_epoch": fmean(rewards[-epoch:]),
    }


if __name__ == "__main__":
    main("rl", reinforce)
