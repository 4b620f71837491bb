"""Make each row of the table, in order; every result is a file, made once.

base ─ teach ─ sft ─ selfsup ─┬─ grpo-none, grpo-random, grpo-island, grpo-bucket
 └ vanilla, evolve   └ row    └ row, and each of them
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation import problems as drawing
from benchmarks.ablation.carry import is_examined
from benchmarks.ablation.exam import Sitting, examine
from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found, Judged
from benchmarks.ablation.plan import Group, Plan, Row
from benchmarks.ablation.steps import Steps, path_of
from benchmarks.ablation.world import ContrastiveWorld
from benchmarks.common import ONE_PROCESS
from cudal1.errors import TrainingError
from cudal1.problem import Problem
from cudal1.prompts.prompt import PromptStyle, answer_text, generation_prompt
from cudal1.record import content_id
from cudal1.selection.exemplar import Birth
from cudal1.teachers import TEACHERS, compose, places, variant
from cudal1.train.grpo import GrpoSettings, train_grpo
from cudal1.train.policy import EMBEDDED, Sampler
from cudal1.train.sft import Pair, SftSettings, train_sft
from tasks.pretrain import lessons_in_reading


class Experiment:
    """One state folder, and the work in it."""

    def __init__(self, plan: Plan, state: Path, bench: Bench, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.state = state
        self.bench = bench
        self._say = say
        self.problems = drawing.draw(plan.problems, plan.device)

    def run(self) -> None:
        """Make a portion's policies and then its exams, seed by seed, before the next portion's.

        Raises:
            TimeUp: the piece is over before the experiment.
        """
        self.teach()
        for portion, seed in itertools.product(self.plan.portions, self.plan.seeds):
            for row in portion:
                if not is_examined(self.plan, self.state, row, seed):  # otherwise not carried
                    self.policy(row, seed)
            for group in self.plan.exam.groups:
                self._examine(portion, group, seed)

    def _examine(self, rows: Sequence[Row], group: Group, seed: int) -> None:
        """Examine these rows together."""
        exam, started = self.plan.exam, time.monotonic()
        diaries = {
            row: Diary(self.state / "exams" / f"{row.value}-{seed}" / f"{group.value}.jsonl")
            for row in rows
        }
        sittings = [
            self._sitting(row, group, seed, diary)
            for row, diary in diaries.items()
            if len(diary.batches) < exam.rounds
        ]
        if sittings:
            examine(self.plan, self.problems[group][: exam.num_problems], sittings, self.bench)
            self._say(
                f"seed {seed}, {group.value}: examined in {time.monotonic() - started:.0f} s, "
                f"so far {self.bench.num_judged} judged in {self.bench.judging_s:.0f} s, "
                f"{self.bench.num_reused} reused"
            )

    def _sitting(self, row: Row, group: Group, seed: int, diary: Diary) -> Sitting:
        known = [self._seeds()] if group is Group.TRAIN else []
        if row.is_reinforced and group is Group.TRAIN:
            known.append(Diary(self._training(row, seed)))
        return Sitting(Sampler(self.policy(row, seed)), diary, known, row.sampling, seed)

    # --- policies --------------------------------------------------------------------------------

    def policy(self, row: Row, seed: int) -> Path:
        """Return the row's weights, and train them if they do not exist."""
        match row:
            case Row.VANILLA | Row.EVOLVE:
                return EMBEDDED
            case Row.SFT:
                return self._trained("sft", seed, self._train_sft)
            case Row.SELFSUP:
                return self._self_taught(self.plan.selfsup.rounds, seed)
            case _:
                return self._trained(
                    row.value, seed, lambda out, seed: self._reinforce(row, out, seed)
                )

    def _trained(self, name: str, seed: int, train: Callable[[Path, int], None]) -> Path:
        out = self.state / "policies" / f"{name}-{seed}"
        if not (out / "config.json").exists():
            self._say(f"{name} seed {seed}: training")
            started = time.monotonic()
            train(out, seed)
            shutil.rmtree(self._work(out), ignore_errors=True)
            self._say(f"{name} seed {seed}: trained in {time.monotonic() - started:.0f} s")
        return out

    def _work(self, out: Path) -> Path:
        return self.state / "work" / out.name

    # --- stage 1 ---------------------------------------------------------------------------------

    def teach(self) -> None:
        """Judge the teachers' answers to training problems: stage 1's data, first exemplars."""
        seeds = self._seeds()
        for problem in self.problems[Group.TRAIN][: self.plan.teaching.num_problems]:
            if problem.id in seeds:
                continue
            found = [self._found(problem, each) for each in self._answers(problem)]
            seeds.add(problem.id, found)

    def _answers(self, problem: Problem) -> list[Judged]:
        """Return the distinct sources of all teachers."""
        section = self.plan.teaching
        sources: dict[str, None] = {}
        for teacher in section.teachers:
            for attempt in range(section.attempts):
                rng = random.Random(
                    content_id(teacher, problem.id, str(attempt), str(section.seed))
                )
                made = variant(problem.source, rng=rng, weights=TEACHERS[teacher].weights)
                sources.setdefault(made.source)
        return [self.bench.score_source(problem, source) for source in sources]

    def _found(self, problem: Problem, judged: Judged) -> Found:
        return Found(
            problem_id=problem.id,
            candidate_id=judged.candidate_id,
            score=judged.score,
            born=None,
            island=None,
            exemplar_ids=(),
            num_tokens=0,
        )

    def _seeds(self) -> Diary:
        return Diary(self.state / "teaching.jsonl")

    def _train_sft(self, out: Path, seed: int) -> None:
        self._learn(EMBEDDED, out, self._seeds().births, self.plan.sft.model_dump(), seed)

    # --- stage 2 ---------------------------------------------------------------------------------

    def _self_taught(self, number: int, seed: int) -> Path:
        """Return the policy after `number` rounds; stage 1's after none."""
        if not number:
            return self.policy(Row.SFT, seed)
        name = self.plan.selfsup.names[number - 1]
        return self._trained(name, seed, lambda out, seed: self._train_round(number, out, seed))

    def _train_round(self, number: int, out: Path, seed: int) -> None:
        """Train on the policy's own successes of this round alone, whatever their speed."""
        init, section = self._self_taught(number - 1, seed), self.plan.selfsup
        diary = Diary(self.state / "training" / f"{out.name}.jsonl")
        problems = self.problems[Group.TRAIN][: section.num_problems]
        if "own" not in diary:
            asked = [problem for problem in problems for _ in range(section.num_samples)]
            answers = Sampler(init).sample(
                [self._plain(problem) for problem in asked],
                temperature=section.temperature,
                top_p=section.top_p,
                max_new_tokens=self.plan.max_new_tokens,
                batch_size=self.plan.batch_size,
                seed=section.seed + seed + 100 * number,
            )
            judged = [
                (problem, self.bench.score(problem, answer.text))
                for problem, answer in zip(asked, answers, strict=True)
            ]
            diary.add("own", [self._found(p, each) for p, each in judged if each is not None])
        asking = {"rounds", "num_problems", "num_samples", "temperature", "top_p"}
        knobs = section.model_dump(exclude=asking)
        knobs["seed"] += 10 * (number - 1)  # draws other lessons in reading
        self._learn(init, out, diary.births, knobs, seed)

    def _learn(
        self,
        init: Path,
        out: Path,
        births: Callable[[str], Sequence[Birth]],
        knobs: dict[str, Any],
        seed: int,
    ) -> None:
        """Train on each problem's distinct successes, supervised; a copy teaches nothing."""
        pairs: list[Pair] = []
        for problem in self.problems[Group.TRAIN]:
            copy = compose(problem.source, [None] * len(places(problem.source))).source
            distinct = {birth.candidate_id: birth for birth in births(problem.id)}
            shown = self.bench.memory.shown(list(distinct.values()))
            pairs += [
                (self._plain(problem), answer_text(each.source))
                for each in shown
                if each.source.strip() != copy.strip()
            ]
        if not pairs:
            raise TrainingError(f"{out.name}: no answer succeeded, so there is nothing to learn")
        count = round(self.plan.replay * len(pairs))
        pairs += [
            ([{"role": "user", "content": prompt}], answer)
            for prompt, answer in lessons_in_reading(knobs["seed"] + 1000 * seed, count)
        ]
        random.Random(seed).shuffle(pairs)
        steps = Steps(path_of(self.state, out.name))
        train_sft(
            init,
            out,
            pairs,
            SftSettings(scale=ONE_PROCESS, **{**knobs, "seed": seed}),
            work=self._work(out),
            on_log=steps.log,
        )
        losses = [f"{step['loss']:.3f}" for step in steps.in_order]
        self._say(f"{out.name}: {len(pairs)} pairs, loss {' '.join(losses)}")

    def _plain(self, problem: Problem) -> list[dict[str, str]]:
        return generation_prompt(problem, style=PromptStyle.COMPACT).as_chat()

    # --- stage 3 ---------------------------------------------------------------------------------

    def _training(self, row: Row, seed: int) -> Path:
        return self.state / "training" / f"{row.value}-{seed}.jsonl"

    def _reinforce(self, row: Row, out: Path, seed: int) -> None:
        init = self.policy(Row.SELFSUP, seed)
        knobs = self.plan.rl.model_copy(
            update={"sampling": row.sampling, "seed": self.plan.rl.seed + seed}
        )
        problems = self.problems[Group.TRAIN][: knobs.num_problems]
        world = ContrastiveWorld(
            problems,
            self.bench,
            Diary(self._training(row, seed)),
            self._seeds(),
            Steps(path_of(self.state, out.name)),
            knobs,
            max_tokens=self.plan.max_prompt_tokens,
            num_tokens=Sampler(init).num_tokens,
            say=lambda text: self._say(f"{out.name} {text}"),
        )
        train_grpo(
            init,
            out,
            [problem.id for problem in problems],
            world,
            GrpoSettings(
                steps=knobs.steps,
                prompts_per_step=knobs.prompts_per_step,
                group_size=knobs.group_size,
                learning_rate=knobs.learning_rate,
                beta=knobs.beta,
                epsilon=knobs.epsilon,
                advantage=knobs.advantage,
                entropy_coef=knobs.entropy_coef,
                entropy_target=knobs.entropy_target,
                resamples=knobs.resamples,
                turns=1,
                mask_truncated=knobs.mask_truncated,
                updates_per_batch=knobs.updates_per_batch,
                temperature=knobs.temperature,
                top_p=knobs.top_p,
                max_new_tokens=self.plan.max_new_tokens,
                checkpoint_every=knobs.checkpoint_every,
                keeps_checkpoints=False,
                seed=knobs.seed,
                scale=ONE_PROCESS,
                vllm_server=None,
            ),
            work=self._work(out),
            on_log=world.log,
        )
