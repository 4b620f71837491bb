"""Stage `generate@PROVIDER`: ask one provider for candidates.

Up to `attempts` answers to each problem, until `successes` of them are executable and correct
(paper 2.2). Never more answers are under way for a problem than it still needs, so none is paid for
in vain; requests to other problems fill the provider's time while answers are judged, as many of
them together as devices make use of. Every answer is stored before it is looked at, with everything
found in it. Training problems only: held-out ones are for the policy to be examined on.

A provider that is down, or out of money, leaves what it gave; the run goes on without the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.llm.provider import EXHAUSTED, Provider, request_to
from cudal1.problem import Problem, Split
from cudal1.prompt import generation_prompt
from cudal1.provider_settings import LocalSettings
from tasks.answers import keep_completion
from tasks.asking import Asking, asking, provider_of
from tasks.foretelling import foretell, stop_without_consent
from tasks.judging import Bench, admitted_problems, bench, device_facts
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main

AHEAD = 2
"""Requests handed over, in multiples of what a provider works on, or the bench judges, at a time:
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
            bench(
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
                    stage.name, ask.stopped, inquiry.num_cut, len(problems), stage.name,
                )  # fmt: skip
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
    """Of those asked, how many are not answered yet."""
    num_lost: int = 0
    """Of those asked, how many will not be answered: the provider stopped."""
    num_found: int = 0
    is_exhausted: bool = False
    """The provider has no more answers to it."""
    is_refused: bool = False
    """The provider has stopped, or will not have this problem."""


class Inquiry:
    """Asks about many problems at once, and about each until it has enough of either."""

    def __init__(
        self, stage: Stage, ledger: Ledger, judge: Bench, provider: Provider, ask: Asking,
        problems: Sequence[Problem],
    ) -> None:  # fmt: skip
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
        """Hand over what may be asked, take in some answers; returns how many problems are done.

        None when all are.
        """
        self._hand_over()
        if self._ask.num_waiting:
            self._take_in(self._answers())
        elif not self._open:
            return None
        return self._close()

    def _answers(self) -> list[Completion]:
        """Those that are to be judged together; others stay under way meanwhile."""
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
            self._provider, stage=self._stage.name, problem=quest.problem, prompt=prompt,
            attempt=quest.num_asked, seed=section.seed,
        )  # fmt: skip
        if self._ask.ask(request):
            quest.num_asked += 1
            quest.num_waiting += 1
        else:
            quest.is_refused = True

    def _take_in(self, answers: Sequence[Completion]) -> None:
        for completion in answers:
            self._open[completion.problem_id].num_waiting -= 1
        if not self._ask.num_waiting:  # who has not been answered by now will not be
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
        """The candidate in an answer, stored; what the answer says of others, noted."""
        quest = self._open[completion.problem_id]
        if completion.finish_reason == EXHAUSTED:
            quest.is_exhausted = True
            quest.num_asked -= 1
            return None
        if completion.is_refused:  # so would the next attempt be
            log.warning(
                "%s: %s: %s", self._stage.name, quest.problem.name, completion.finish_reason
            )
            quest.is_refused = True
        return keep_completion(self._ledger, completion)

    def _close(self) -> int:
        """Forget problems that are done; returns their number."""
        done = [q for q in self._open.values() if not q.num_waiting and not self._may_be_asked(q)]
        for quest in done:
            del self._open[quest.problem.id]
            is_satisfied = quest.num_found >= self._section.successes
            self.num_asked += quest.num_asked - quest.num_lost
            self.num_satisfied += is_satisfied
            self.num_cut += not is_satisfied and (quest.is_refused or quest.num_lost > 0)
        return len(done)


if __name__ == "__main__":
    main("generate", ask_provider, foretell=foretell)
