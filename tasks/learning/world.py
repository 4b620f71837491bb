"""The world of stage `rl`: prompts from the ledger, rewards from verdicts.

Before each group is sampled, its prompt is built from what earlier stages and steps have found. By
default these are two candidates of the problem from different score buckets. Each answer is
extracted, judged and rewarded with its certified speedup, smoothed (equation 6). A success may be
an exemplar in a later step.

With several turns each answer goes on from the attempts of its own trajectory: its prompt shows
them with what became of them, and its reward counts for them, too. It trains with its own prompt.

Answers are stored and built as they are sampled, and judged beside the policy where it leaves a
device free.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, pstdev
from typing import Any, Self

from cudal1.candidate import Completion
from cudal1.errors import TrainingError
from cudal1.extract.sections import sections_of
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import fitting_contrastive_prompt, fitting_refinement_prompt
from cudal1.record import content_id
from cudal1.selection.contrast import Choice, Sampling, choose
from cudal1.selection.exemplar import Attempt, Birth
from cudal1.selection.failures import LESSONS
from cudal1.selection.progress import Outcome, rewards, shares
from cudal1.selection.reward import Smoother, speed_reward, success_reward
from cudal1.selection.trajectories import discounted_returns, from_group_mean
from cudal1.services.answers import keep_completions
from cudal1.services.attempts import attempt_of, failure_of
from cudal1.services.judging import VerdictSource, device_facts
from cudal1.services.stopwatch import Part, Stopwatch
from cudal1.train.policy import Chat
from tasks.learning import step_numbers
from tasks.learning.history import History
from tasks.learning.questions import Given, Question, programs_of
from tasks.learning.training import Steps
from tasks.stage import Stage

ATTEMPTS = 10_000
"""Factor of a completion's attempt: step times this, plus its place in the step's batch."""


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
        self._first: dict[str, Question] = {}
        """Questions of the first turn, by problem."""
        self._next: dict[int, Question] = {}
        """Questions of later turns, by the number of the answer that they follow."""
        self._smoother = Smoother(
            section.smooth_scope,
            k=section.smooth_k,
            window=section.smooth_window,
            refresh=section.smooth_refresh,
            log_scale=section.smooth_log,
        )
        self._step: int | None = None
        """The current step."""
        self._answers: list[Given] = []
        """Answers of the current step so far."""
        self._num_judged = 0
        """Number of them, from the first on, that have their verdict."""
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
            self._num_judged, self._next = 0, {}
            self._watch.restart()
        section, problem = self._section, self._problems[problem_id]
        rng = random.Random(content_id(str(section.seed), problem_id, str(step)))
        choice: Choice[Birth] = Choice()  # making the class Choice[Birth] takes a second
        failures: list[Attempt] = []
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
            failures = self._failures(problem, step, island=choice.island)
        params = self._stage.params
        exemplars = self._ledger.shown(choice.exemplars)
        prompt, _ = fitting_contrastive_prompt(  # shows what was written elsewhere, at any length
            problem,
            exemplars,
            failures=failures,
            style=params.policy.prompts,
            facts=device_facts(params),
            max_tokens=params.max_contrast_tokens(section),
            num_tokens=self._num_tokens,
        )
        shown = set(prompt.exemplar_ids)
        programs = programs_of(
            problem, (e.source for e in (*exemplars, *failures) if e.candidate_id in shown)
        )
        self._first[problem_id] = Question(problem_id, prompt, programs, choice.island)
        self._watch.lap(Part.OWN)
        return prompt.as_chat()

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        """Return the prompts that go on from answers of this step, once these are judged."""
        assert step == self._step, "a turn comes after the one before it"
        self._watch.lap(Part.GENERATE)
        self._settle()
        self._watch.lap(Part.VERDICTS)
        self._next |= {number: self._question_after(number) for number in numbers}
        self._watch.lap(Part.OWN)
        return [self._next[number].prompt.as_chat() for number in numbers]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Take in answers that have just been sampled: building and judging them begins."""
        assert step == self._step, "an offer comes after its prompts"
        self._watch.lap(Part.GENERATE)
        self._take_in([self._first[each] for each in problem_ids], texts, step)
        self._watch.lap(Part.OWN)

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        """Take in answers of a later turn, each with the number of the answer before it."""
        self._watch.lap(Part.GENERATE)
        self._take_in([self._next[number] for number in follows], texts, step)
        self._watch.lap(Part.OWN)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the smoothed rewards of a batch of answers; failures earn the smoothed value of 0.

        With several turns it is the discounted sum of the smoothed rewards from each turn on, each
        clipped by itself and counted from its group's mean (`cudal1.selection.trajectories`).
        Offered answers of the batch must come first, in the same order.
        """
        self._watch.lap(Part.TRAIN if self._answers else Part.GENERATE)
        num_offered = len(self._answers)
        if [each.completion.text for each in self._answers] != list(texts[:num_offered]):
            raise TrainingError(
                f"{self._stage.name}: TRL reads answers of this policy otherwise than they were "
                "sampled; take another policy.source"
            )
        rest = [self._first[each] for each in problem_ids[num_offered:]]
        self._take_in(rest, texts[num_offered:], step)
        self._watch.lap(Part.OWN)
        self._settle()
        self._watch.lap(Part.VERDICTS)
        verdicts = [each.verdict for each in self._answers]
        raw = [speed_reward(verdict) for verdict in verdicts]
        outcomes = [self._outcome(*each) for each in zip(self._answers, raw, strict=True)]
        smoothed = self._smoother.smooth(self._rewards(outcomes, problem_ids), problem_ids)
        ids = [each.completion.id for each in self._answers]
        self._ledger.add_rewards(step, list(zip(ids, raw, smoothed, strict=True)))
        reused = self._judge.num_reused - self._before.num_reused
        section, known = self._section, partial(self._known_programs, step=step)
        self._steps.log(
            step + 1,
            {  # the step after it, as the trainer counts
                "reward_raw": fmean(raw),
                "reward_raw_std": pstdev(raw),
                "success": fmean(success_reward(verdict) for verdict in verdicts),
                "reused": reused / max(1, len(verdicts) - verdicts.count(None)),
                "best_speedup": self._best_speedup(step),
                "exemplars": fmean(len(each.completion.exemplar_ids) for each in self._answers),
                **shares(outcomes),
                **step_numbers.hacked(self._answers),
                **(step_numbers.by_turn(self._answers, raw) if section.turns > 1 else {}),
                **(step_numbers.whole(self._answers) if section.whole_answers else {}),
                **step_numbers.novelty(self._answers, known),
            },
        )
        self._watch.lap(Part.OWN)
        if section.turns == 1:
            return list(smoothed)
        follows = [each.question.follows for each in self._answers]
        counted = from_group_mean(smoothed, problem_ids)
        return list(discounted_returns(counted, follows, discount=section.turn_discount))

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

    def _take_in(self, questions: Sequence[Question], texts: Sequence[str], step: int) -> None:
        completions = [
            self._completion(question, text, step, index)
            for index, (question, text) in enumerate(
                zip(questions, texts, strict=True), start=len(self._answers)
            )
        ]
        candidates = keep_completions(self._ledger, completions)
        self._answers += map(Given, questions, completions, candidates)
        for candidate in candidates:
            if candidate is not None:
                self._judge.expect(self._problems[candidate.problem_id], candidate)

    def _settle(self) -> None:
        """Note the verdicts on the step's answers that have none yet."""
        waiting = self._answers[self._num_judged :]
        asked = [
            (self._problems[each.candidate.problem_id], each.candidate)
            for each in waiting
            if each.candidate is not None
        ]
        found = iter(self._judge.verdicts(asked))
        for each in waiting:
            each.verdict = None if each.candidate is None else next(found)
        self._num_judged = len(self._answers)

    def _failures(self, problem: Problem, step: int, *, island: int | None) -> list[Attempt]:
        """Return failed programs of earlier steps to show, with their reasons, the newest last."""
        section = self._section
        if section.num_failures == 0 or section.sampling is Sampling.NONE:
            return []
        found = self._ledger.failures(
            problem.id,
            device_kind=self._judge.device.kind,
            protocol_id=self._judge.protocol.id,
            statuses=LESSONS,
            stages=self._history.stages,
            first_attempt=step * ATTEMPTS,
            island=island,
            count=section.num_failures,
        )
        return [failure_of(candidate, verdict) for candidate, verdict in found]

    def _question_after(self, number: int) -> Question:
        """Return the question that goes on from an answer of the step."""
        given, params = self._answers[number], self._stage.params
        problem = self._problems[given.question.problem_id]
        attempts = (
            *given.question.attempts,
            attempt_of(self._ledger, given.completion, given.candidate, given.verdict),
        )
        prompt, _ = fitting_refinement_prompt(
            problem,
            attempts,
            style=params.policy.prompts,
            facts=device_facts(params),
            max_tokens=params.max_contrast_tokens(self._section),
            num_tokens=self._num_tokens,
        )
        return Question(
            problem.id,
            prompt,
            programs_of(problem, (attempt.source for attempt in attempts)),
            given.question.island,
            attempts,
            follows=number,
        )

    def _outcome(self, given: Given, speedup: float) -> Outcome:
        program = None if given.candidate is None else program_id(given.candidate.source)
        must_be_whole = self._section.whole_answers and given.question.asks_for_sections
        is_paid = not must_be_whole or sections_of(given.completion.text).is_whole
        return Outcome(
            speedup=speedup if is_paid else 0.0,
            best_shown=given.question.best_shown,
            is_copy=program in given.question.programs,
        )

    def _rewards(self, outcomes: Sequence[Outcome], problem_ids: Sequence[str]) -> list[float]:
        """Return what each answer earns beside the others of its group and turn, before smoothing.

        Answers of one turn were all shown equally many attempts.
        """
        earned = [0.0] * len(outcomes)
        asked = [
            (problem_id, given.question.turn)
            for problem_id, given in zip(problem_ids, self._answers, strict=True)
        ]
        for question in dict.fromkeys(asked):
            group = [i for i, each in enumerate(asked) if each == question]
            found = rewards(self._section.reward, [outcomes[i] for i in group])
            for i, reward in zip(group, found, strict=True):
                earned[i] = reward
        return earned

    def _known_programs(self, problem_id: str, step: int) -> frozenset[str]:
        """Return the programs of a problem that the history and this stage had before a step."""
        known = self._ledger.query(
            "programs",
            problem_id=problem_id,
            stages=list(self._history.stages),
            running=self._stage.name,
            first_attempt=step * ATTEMPTS,
        )["program_id"]
        return self._history.programs.get(problem_id, frozenset()) | frozenset(known)

    def _best_speedup(self, step: int) -> float:
        """Return the problems' mean of the best certified speedup so far; no success is 1."""
        rows = self._ledger.query("best_so_far", stage=self._stage.name, step=step).to_dicts()
        best = {row["problem_id"]: row["best"] for row in rows}
        return fmean(max(1.0, best.get(problem, 1.0)) for problem in self._problems)

    def _completion(self, question: Question, text: str, step: int, index: int) -> Completion:
        prompt, follows = question.prompt, question.follows
        return Completion(
            id=content_id(self._stage.name, str(step), str(index), prompt.id, text),
            stage=self._stage.name,
            provider="policy",
            problem_id=question.problem_id,
            prompt_id=prompt.id,
            template_id=prompt.template_id,
            attempt=step * ATTEMPTS + index,
            text=text,
            finish_reason="sampled",
            exemplar_ids=prompt.exemplar_ids,
            exemplar_scores=prompt.exemplar_scores,
            island=question.island,
            turn=question.turn,
            follows=None if follows is None else self._answers[follows].completion.id,
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
