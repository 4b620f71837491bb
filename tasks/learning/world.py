"""The world of stage `rl`: prompts from the ledger, rewards from verdicts.

Before each group is sampled, its prompt is built from what earlier stages and steps have found. By
default these are two candidates of the problem from different score buckets. Each answer is
extracted, judged and rewarded with its certified speedup, smoothed (equation 6). A success may be
an exemplar in a later step.

Answers are stored and built as they are sampled, and judged beside the policy where it leaves a
device free.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any, Self

from cudal1.candidate import Candidate, Completion
from cudal1.errors import TrainingError
from cudal1.extract.sections import sections_of
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import Prompt, fitting_contrastive_prompt
from cudal1.record import content_id
from cudal1.selection.contrast import Choice, choose
from cudal1.selection.exemplar import Birth
from cudal1.selection.progress import Outcome, rewards, shares
from cudal1.selection.reward import Smoother, speed_reward, success_reward
from cudal1.services.answers import keep_completions
from cudal1.services.judging import VerdictSource, device_facts
from cudal1.services.stopwatch import Part, Stopwatch
from cudal1.train.policy import Chat
from cudal1.verdict import Status, Verdict
from tasks.learning.training import Steps
from tasks.stage import Stage

ATTEMPTS = 10_000
"""Factor of a completion's attempt: step times this, plus its place in the step's batch."""


@dataclass(frozen=True)
class History:
    """The successes that a stage may show before it has any of its own."""

    stages: tuple[str, ...] = ()
    """Names of stages: their successes are looked up in the ledger when a prompt is made."""
    births: Mapping[str, Sequence[Birth]] = field(default_factory=dict)
    """Further ones by problem, from a file."""
    programs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The programs of `births` by problem."""

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Return the history that `queries/history.sql` has written down."""
        births: dict[str, list[Birth]] = {}
        programs: dict[str, set[str]] = {}
        for row in rows:
            birth = Birth(candidate_id=row["candidate_id"], score=row["certified"])
            births.setdefault(row["problem_id"], []).append(birth)
            programs.setdefault(row["problem_id"], set()).add(row["program_id"])
        return cls((), births, {key: frozenset(found) for key, found in programs.items()})


class ContrastiveWorld:
    """The environment of the trainer: prompts from the ledger, rewards from verdicts."""

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        judge: VerdictSource,
        problems: Sequence[Problem],
        steps: Steps,
        *,
        history: History,
        num_tokens: Callable[[Chat], int],
    ) -> None:
        section = stage.params.rl
        self._history = history
        self._num_tokens = num_tokens
        self._stage = stage
        self._section = section
        self._ledger = ledger
        self._judge = judge
        self._steps = steps
        self._problems = {problem.id: problem for problem in problems}
        self._prompts: dict[str, Prompt] = {}
        self._islands: dict[str, int | None] = {}
        self._shown: dict[str, frozenset[str]] = {}
        """Programs that each problem's prompt shows, the reference's too."""
        self._smoother = Smoother(
            section.smooth_scope,
            k=section.smooth_k,
            window=section.smooth_window,
            refresh=section.smooth_refresh,
            log_scale=section.smooth_log,
        )
        self._step: int | None = None
        """The current step."""
        self._answers: list[tuple[Completion, Candidate | None]] = []
        """Answers of the current step so far."""
        self._watch = Stopwatch(judge.sharing)
        self._before = _Counts.of(judge)

    @property
    def problem_ids(self) -> list[str]:
        """Return the ids of the problems that it asks about."""
        return list(self._problems)

    @property
    def judges_meanwhile(self) -> bool:
        """Return whether verdicts on offered answers come while others are being sampled."""
        return self._judge.sharing.is_beside

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return the group's prompt, from the exemplars that exist when the step begins."""
        if step != self._step:
            self.end_step()
            self._step, self._answers, self._before = step, [], _Counts.of(self._judge)
            self._watch.restart()
        section, problem = self._section, self._problems[problem_id]
        rng = random.Random(content_id(str(section.seed), problem_id, str(step)))
        choice: Choice[Birth] = Choice()  # making the class Choice[Birth] takes a second
        if rng.random() >= section.plain_share:
            found = self._ledger.births(
                problem_id,
                device_kind=self._judge.device.kind,
                protocol_id=self._judge.protocol.id,
                stages=[*self._history.stages, self._stage.name],
                attempts_per_step=ATTEMPTS,
            )
            known = [*self._history.births.get(problem_id, ()), *found]
            choice = choose(known, section, sampling=section.sampling, at_round=step, rng=rng)
        params = self._stage.params
        exemplars = self._ledger.shown(choice.exemplars)
        prompt, _ = fitting_contrastive_prompt(  # shows what was written elsewhere, at any length
            problem,
            exemplars,
            style=params.policy.prompts,
            facts=device_facts(params),
            max_tokens=params.max_contrast_tokens(section),
            num_tokens=self._num_tokens,
        )
        self._prompts[problem_id], self._islands[problem_id] = prompt, choice.island
        self._shown[problem_id] = frozenset(
            program_id(source)
            for source in (
                problem.as_candidate,
                *(each.source for each in exemplars if each.candidate_id in prompt.exemplar_ids),
            )
        )
        self._watch.lap(Part.OWN)
        return prompt.as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Take in answers that have just been sampled: building and judging them begins."""
        assert step == self._step, "an offer comes after its prompts"
        self._watch.lap(Part.GENERATE)
        self._take_in(problem_ids, texts, step)
        self._watch.lap(Part.OWN)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the smoothed rewards of a batch of answers; failures earn the smoothed value of 0.

        Offered answers of the batch must come first, in the same order.
        """
        self._watch.lap(Part.TRAIN if self._answers else Part.GENERATE)
        num_offered = len(self._answers)
        if [answer.text for answer, _ in self._answers] != list(texts[:num_offered]):
            raise TrainingError(
                f"{self._stage.name}: TRL reads answers of this policy otherwise than they were "
                "sampled; take another policy.source"
            )
        self._take_in(problem_ids[num_offered:], texts[num_offered:], step)
        self._watch.lap(Part.OWN)
        verdicts = self._verdicts()
        self._watch.lap(Part.VERDICTS)
        raw = [speed_reward(verdict) for verdict in verdicts]
        outcomes = [
            self._outcome(completion, candidate, speedup)
            for (completion, candidate), speedup in zip(self._answers, raw, strict=True)
        ]
        smoothed = self._smoother.smooth(self._rewards(outcomes, problem_ids), problem_ids)
        ids = [answer.id for answer, _ in self._answers]
        self._ledger.add_rewards(step, list(zip(ids, raw, smoothed, strict=True)))
        reused = self._judge.num_reused - self._before.num_reused
        self._steps.log(
            step + 1,
            {  # the step after it, as the trainer counts
                "reward_raw": fmean(raw),
                "reward_raw_std": pstdev(raw),
                "success": fmean(success_reward(verdict) for verdict in verdicts),
                "hacked": fmean(_is_hacked(verdict) for verdict in verdicts),
                "reused": reused / max(1, len(verdicts) - verdicts.count(None)),
                "best_speedup": self._best_speedup(step),
                "exemplars": fmean(len(self._prompts[p].exemplar_ids) for p in problem_ids),
                **shares(outcomes),
                **self._whole(),
                **self._novelty(step),
            },
        )
        self._watch.lap(Part.OWN)
        return list(smoothed)

    def end_step(self) -> None:
        """End the current step, if there is one, and log the parts of its time."""
        if self._step is not None and self._answers:
            self._watch.lap(Part.TRAIN)
            now = _Counts.of(self._judge)
            self._steps.log(
                self._step + 1,
                self._watch.numbers(
                    judge_s=now.judge_s - self._before.judge_s,
                    build_s=now.build_s - self._before.build_s,
                ),
            )
        self._step = None

    def state(self) -> dict[str, Any]:
        """Return the smoother's statistics; everything else is in the ledger."""
        return self._smoother.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._smoother.restore(state)

    def _take_in(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        completions = [
            self._completion(problem_id, text, step, index)
            for index, (problem_id, text) in enumerate(
                zip(problem_ids, texts, strict=True), start=len(self._answers)
            )
        ]
        candidates = keep_completions(self._ledger, completions)
        self._answers += zip(completions, candidates, strict=True)
        for candidate in candidates:
            if candidate is not None:
                self._judge.expect(self._problems[candidate.problem_id], candidate)

    def _verdicts(self) -> list[Verdict | None]:
        """Return the verdicts on the step's answers; None where there is no source."""
        found = self._judge.verdicts(
            [
                (self._problems[candidate.problem_id], candidate)
                for _, candidate in self._answers
                if candidate is not None
            ]
        )
        rest = iter(found)
        return [None if candidate is None else next(rest) for _, candidate in self._answers]

    def _outcome(
        self, completion: Completion, candidate: Candidate | None, speedup: float
    ) -> Outcome:
        program = None if candidate is None else program_id(candidate.source)
        # a plain prompt shows nothing to analyse, and asks for code alone
        must_be_whole = self._section.whole_answers and completion.exemplar_ids
        is_paid = not must_be_whole or sections_of(completion.text).is_whole
        return Outcome(
            speedup=speedup if is_paid else 0.0,
            best_shown=max(completion.exemplar_scores, default=None),
            is_copy=program in self._shown[completion.problem_id],
        )

    def _rewards(self, outcomes: Sequence[Outcome], problem_ids: Sequence[str]) -> list[float]:
        """Return what each answer earns beside the others of its group, before smoothing."""
        earned = [0.0] * len(outcomes)
        for problem_id in dict.fromkeys(problem_ids):
            group = [i for i, each in enumerate(problem_ids) if each == problem_id]
            found = rewards(self._section.reward, [outcomes[i] for i in group])
            for i, reward in zip(group, found, strict=True):
                earned[i] = reward
        return earned

    def _whole(self) -> dict[str, float]:
        """Return the share of answers with analysis, design and code, where these are required."""
        asked = [each for each, _ in self._answers if each.exemplar_ids]
        if not asked or not self._section.whole_answers:
            return {}
        return {"whole": fmean(sections_of(each.text).is_whole for each in asked)}

    def _novelty(self, step: int) -> dict[str, float]:
        """Return the share of the step's answers that are new, and a group's different programs.

        An answer is new if neither the history's stages and successes nor this stage had such a
        program of its problem before this step, nor this step's answers before it.
        """
        groups: dict[str, list[str]] = {}
        for completion, candidate in self._answers:
            programs = groups.setdefault(completion.problem_id, [])
            if candidate is not None:
                programs.append(program_id(candidate.source))
        num_new = 0
        for problem_id, programs in groups.items():
            known = self._ledger.query(
                "programs",
                problem_id=problem_id,
                stages=list(self._history.stages),
                running=self._stage.name,
                first_attempt=step * ATTEMPTS,
            )["program_id"]
            before = self._history.programs.get(problem_id, frozenset())
            num_new += len(set(programs) - set(known) - before)
        return {
            "new": num_new / len(self._answers),
            "distinct": fmean(len(set(programs)) for programs in groups.values()),
        }

    def _best_speedup(self, step: int) -> float:
        """Return the problems' mean of the best certified speedup so far; no success is 1."""
        rows = self._ledger.query("best_so_far", stage=self._stage.name, step=step).to_dicts()
        best = {row["problem_id"]: row["best"] for row in rows}
        return fmean(max(1.0, best.get(problem, 1.0)) for problem in self._problems)

    def _completion(self, problem_id: str, text: str, step: int, index: int) -> Completion:
        prompt = self._prompts[problem_id]
        return Completion(
            id=content_id(self._stage.name, str(step), str(index), prompt.id, text),
            stage=self._stage.name,
            provider="policy",
            problem_id=problem_id,
            prompt_id=prompt.id,
            template_id=prompt.template_id,
            attempt=step * ATTEMPTS + index,
            text=text,
            finish_reason="sampled",
            exemplar_ids=prompt.exemplar_ids,
            exemplar_scores=prompt.exemplar_scores,
            island=self._islands[problem_id],
        )


@dataclass(frozen=True)
class _Counts:
    """The counts of a source of verdicts when a step begins."""

    num_reused: int
    judge_s: float
    build_s: float

    @classmethod
    def of(cls, judge: VerdictSource) -> Self:
        return cls(judge.num_reused, judge.judge_s, judge.build_s)


def _is_hacked(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.status is Status.HACKED
