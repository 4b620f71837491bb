"""Stage `generate@PROVIDER`: ask one provider for candidates.

Each problem gets up to `attempts` answers, until `successes` of them are executable and correct
(paper 2.2). A problem never has more requests in flight than it still needs answers, so no answer
is paid for in vain. Requests to other problems fill the provider's time while answers are judged.
As many answers are judged together as devices make use of.

Every answer is stored before it is read, with everything found in it. Training problems only:
held-out ones are for the policy to be examined on.

A provider that is down, or out of money, leaves its earlier answers; the run goes on without the
rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.llm.provider import EXHAUSTED, Provider, request_to
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import generation_prompt
from cudal1.services.answers import keep_completion
from cudal1.services.asking import Asking, asking, provider_of
from cudal1.services.judging import VerdictSource, device_facts, verdict_source
from cudal1.settings.provider_settings import LocalSettings
from tasks.cost_forecast import forecast, stop_without_consent
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main

AHEAD = 2
"""Requests handed over, in multiples of what the provider or the judges work on at a time, so that
neither waits for the other."""


def ask_provider(stage: Stage) -> Mapping[str, float | int]:
    """data/problems.parquet → data/generate/PROVIDER.parquet."""
    section = stage.params.generate
    name = stage.instance
    settings = section.providers[name]
    provider = provider_of(name, settings)
    stop_without_consent(stage.params, name)
    problems = admitted_problems(Split.TRAIN)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with (
            verdict_source(
                ledger, stage.params, num_policies=int(isinstance(settings, LocalSettings))
            ) as judge,
            asking(ledger, provider) as ask,
            progress(f"problems answered by {name}", len(problems)) as advance,
        ):
            inquiry = Inquiry(stage, ledger, judge, provider, ask, problems)
            while (done := inquiry.step()) is not None:
                advance(done)
            if ask.stopped is not None:
                log.warning(
                    "%s: %s; the run goes on without %d of %d problems: `dvc repro -f -s %s`",
                    stage.name,
                    ask.stopped,
                    inquiry.num_cut,
                    len(problems),
                    stage.name,
                )
        ledger.export()
        ledger.write_product("generated", DATA / "generate" / f"{name}.parquet", stage=stage.name)
    return {
        "num_problems": len(problems),
        "num_asked": inquiry.num_asked,
        "num_satisfied": inquiry.num_satisfied,
        "num_cut": inquiry.num_cut,
        "num_checked": judge.num_judged,
    }


@dataclass
class Quest:
    """A problem on the way to its successes."""

    problem: Problem
    num_asked: int = 0
    num_waiting: int = 0
    """Requests that are not answered yet."""
    num_lost: int = 0
    """Requests that will not be answered, because the provider stopped."""
    num_found: int = 0
    is_exhausted: bool = False
    """True if the provider has no more answers to it."""
    is_refused: bool = False
    """True if the provider has stopped, or refuses this problem."""


class Inquiry:
    """A search that asks about many problems at once, about each until it has enough.

    It has enough when `attempts` or `successes` is reached.
    """

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        judge: VerdictSource,
        provider: Provider,
        ask: Asking,
        problems: Sequence[Problem],
    ) -> None:
        self._stage = stage
        self._section = stage.params.generate
        self._facts = device_facts(stage.params)
        self._ledger = ledger
        self._judge = judge
        self._provider = provider
        self._ask = ask
        self._todo = deque(Quest(problem) for problem in problems)
        self._open: dict[str, Quest] = {}
        self.num_asked = self.num_satisfied = self.num_cut = 0

    def step(self) -> int | None:
        """Hand over requests, take in answers, and return how many problems are done.

        Return None when all problems are done.
        """
        self._hand_over()
        if self._ask.num_waiting:
            self._take_in(self._answers())
        elif not self._open:
            return None
        return self._close()

    def _answers(self) -> list[Completion]:
        """Return answers to judge together; others stay in flight meanwhile."""
        answers: list[Completion] = []
        for _ in range(max(1, min(self._judge.width, self._ask.num_waiting // AHEAD))):
            completion = self._ask.answer()
            if completion is None:
                break
            answers.append(completion)
        return answers

    def _hand_over(self) -> None:
        room = AHEAD * max(self._provider.width, self._judge.width)
        for quest in self._open.values():
            while self._ask.num_waiting < room and self._may_be_asked(quest):
                self._hand_over_next(quest)
        while self._ask.num_waiting < room and self._todo:
            quest = self._todo.popleft()
            self._open[quest.problem.id] = quest
            while self._ask.num_waiting < room and self._may_be_asked(quest):
                self._hand_over_next(quest)

    def _may_be_asked(self, quest: Quest) -> bool:
        return not (
            quest.is_exhausted
            or quest.is_refused
            or quest.num_asked >= self._section.attempts
            or quest.num_found + quest.num_waiting >= self._section.successes
        )

    def _hand_over_next(self, quest: Quest) -> None:
        section = self._section
        prompt = generation_prompt(quest.problem, style=section.prompts, facts=self._facts)
        request = request_to(
            self._provider,
            stage=self._stage.name,
            problem=quest.problem,
            prompt=prompt,
            attempt=quest.num_asked,
            seed=section.seed,
        )
        if self._ask.ask(request):
            quest.num_asked += 1
            quest.num_waiting += 1
        else:
            quest.is_refused = True

    def _take_in(self, answers: Sequence[Completion]) -> None:
        for completion in answers:
            self._open[completion.problem_id].num_waiting -= 1
        if not self._ask.num_waiting:  # requests without an answer by now will get none
            for quest in self._open.values():
                quest.num_lost += quest.num_waiting
                quest.num_waiting = 0
        found = [
            (self._open[completion.problem_id], candidate)
            for completion in answers
            if (candidate := self._found(completion)) is not None
        ]
        asked = [(quest.problem, candidate) for quest, candidate in found]
        for (quest, _), verdict in zip(
            found, self._judge.judge_all(asked, timing=False), strict=True
        ):
            quest.num_found += verdict.is_successful

    def _found(self, completion: Completion) -> Candidate | None:
        """Store and return the candidate in an answer; note what it says of further answers."""
        quest = self._open[completion.problem_id]
        if completion.finish_reason == EXHAUSTED:
            quest.is_exhausted = True
            quest.num_asked -= 1
            return None
        if completion.is_refused:  # the next attempt would be refused, too
            log.warning(
                "%s: %s: %s", self._stage.name, quest.problem.name, completion.finish_reason
            )
            quest.is_refused = True
        return keep_completion(self._ledger, completion)

    def _close(self) -> int:
        """Drop problems that are done, and return their number."""
        done = [q for q in self._open.values() if not q.num_waiting and not self._may_be_asked(q)]
        for quest in done:
            del self._open[quest.problem.id]
            is_satisfied = quest.num_found >= self._section.successes
            self.num_asked += quest.num_asked - quest.num_lost
            self.num_satisfied += is_satisfied
            self.num_cut += not is_satisfied and (quest.is_refused or quest.num_lost > 0)
        return len(done)


if __name__ == "__main__":
    main("generate", ask_provider, forecast=forecast)
