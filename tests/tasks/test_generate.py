"""Tests of the requests of stage `generate`: their choice, their order, and their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.candidate import Candidate, Completion
from cudal1.errors import BudgetError, ProviderDownError
from cudal1.ledger import Ledger
from cudal1.llm.provider import EXHAUSTED, Receipts, Request, completion_of
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.services.asking import asking
from cudal1.settings.params import Params
from tasks.generate import Inquiry
from tasks.stage import Stage

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")
GOOD, BAD = "class ModelNew: ...  # good", "class ModelNew: ...  # bad"


class Scripted:
    """A provider that answers each request as `script` says, the newest first."""

    name = "scripted"
    fingerprint = "scripted"
    is_seeded = False

    def __init__(self, script: Any, *, width: int = 1, down_after: int | None = None) -> None:
        """Take `script(problem name, attempt)`; the provider is down after `down_after` answers."""
        self._script = script
        self.width = width
        self.down_after = down_after
        self.asked: list[tuple[str, int]] = []
        self.most_waiting: dict[str, int] = {}

    def open(self, receipts: Receipts) -> AbstractContextManager[Any]:
        """Open an exchange that keeps its books in the provider."""
        return self._opened(receipts)

    @contextmanager
    def _opened(self, receipts: Receipts) -> Iterator[Any]:
        waiting: list[Request] = []

        def ask(request: Request) -> None:
            waiting.append(request)
            name = request.problem.name
            self.asked.append((name, request.attempt))
            here = sum(other.problem.name == name for other in waiting)
            self.most_waiting[name] = max(here, self.most_waiting.get(name, 0))

        def answer() -> Completion:
            if self.down_after is not None:
                if self.down_after == 0:
                    raise ProviderDownError("provider scripted: gone")
                self.down_after -= 1
            request = waiting.pop()
            said = self._script(request.problem.name, request.attempt)
            text, finish_reason = (
                ("", said) if said == EXHAUSTED else (f"```python\n{said}\n```", "stop")
            )
            completion = completion_of(
                request, provider=self.name, text=text, finish_reason=finish_reason
            )
            receipts.arrived(completion)
            return completion

        yield SimpleNamespace(ask=ask, answer=answer)


class Judge:
    """A judge that reads from a source whether it is good."""

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self.lengths: list[int] = []
        """The lengths of the lists of candidates."""

    def judge_all(self, asked: list[tuple[Problem, Candidate]], *, timing: bool) -> list[Any]:
        assert not timing
        self.lengths.append(len(asked))
        return [SimpleNamespace(is_successful="good" in candidate.source) for _, candidate in asked]


def problem(name: str) -> Problem:
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name=name,
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=f"# {name}\n",
    )


def stage(attempts: int = 5, successes: int = 2) -> Stage:
    changes = {"attempts": attempts, "successes": successes}
    section = PARAMS.generate.model_copy(update=changes)
    params = PARAMS.model_copy(update={"generate": section})
    return Stage(name="generate@scripted", item="scripted", params=params, run="r")


def inquire(
    folder: Path, provider: Scripted, *names: str, judges: Judge | None = None, **limits: int
) -> Inquiry:
    """Run the inquiry to the end, as the stage does."""
    running = stage(**limits)
    with Ledger.open(folder) as ledger:
        ledger.begin(running.name)
        with asking(ledger, provider) as ask:
            judge: Any = judges or Judge()
            inquiry = Inquiry(running, ledger, judge, provider, ask, [problem(n) for n in names])
            while inquiry.step() is not None:
                pass
    return inquiry


def test_a_problem_is_finished_after_its_successes(tmp_path: Path) -> None:
    provider = Scripted(lambda name, attempt: GOOD + str(attempt))
    inquiry = inquire(tmp_path, provider, "one")
    assert sorted(provider.asked) == [("one", 0), ("one", 1)]
    assert (inquiry.num_asked, inquiry.num_satisfied) == (2, 1)


def test_a_problem_is_finished_after_its_attempts(tmp_path: Path) -> None:
    provider = Scripted(lambda name, attempt: BAD + str(attempt))
    inquiry = inquire(tmp_path, provider, "one", attempts=4)
    assert sorted(provider.asked) == [("one", attempt) for attempt in range(4)]
    assert (inquiry.num_asked, inquiry.num_satisfied) == (4, 0)


def test_a_problem_is_finished_when_there_are_no_more_answers(tmp_path: Path) -> None:
    provider = Scripted(lambda name, attempt: EXHAUSTED if attempt else BAD)
    inquiry = inquire(tmp_path, provider, "one")
    assert inquiry.num_asked == 1


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("width", [1, 3, 50])
def test_no_more_requests_are_in_flight_than_needed(
    tmp_path: Path, width: int, at_once: int
) -> None:
    provider = Scripted(lambda name, attempt: GOOD if attempt == 3 else BAD, width=width)
    inquire(tmp_path, provider, "one", "two", judges=Judge(at_once), attempts=9)
    assert max(provider.most_waiting.values()) <= 2


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("width", [1, 3, 50])
def test_the_questions_do_not_depend_on_the_order_of_answers(
    tmp_path: Path, width: int, at_once: int
) -> None:
    script = {"one": (1, 4), "two": (0, 1), "three": (7, 8), "four": ()}

    def say(name: str, attempt: int) -> str:
        return (GOOD if attempt in script[name] else BAD) + f"{name} {attempt}"

    provider = Scripted(say, width=width)
    inquire(tmp_path, provider, *script, judges=Judge(at_once), attempts=9)
    wanted = {"one": range(5), "two": range(2), "three": range(9), "four": range(9)}
    assert sorted(provider.asked) == sorted((name, k) for name in wanted for k in wanted[name])


def test_other_problems_fill_a_wide_provider(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(20)]
    provider = Scripted(lambda name, attempt: GOOD + str(attempt), width=8)
    running = stage()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin(running.name)
        with asking(ledger, provider) as ask:
            judge: Any = Judge()
            inquiry = Inquiry(running, ledger, judge, provider, ask, [problem(n) for n in names])
            inquiry.step()
            assert ask.num_waiting + 1 >= provider.width


@pytest.mark.slow
def test_answers_are_judged_together_where_that_is_sooner(tmp_path: Path) -> None:
    """Other requests are in flight meanwhile, so that the provider does not wait, either."""
    names = [f"p{i}" for i in range(20)]
    for at_once, most in ((1, 1), (8, 8)):
        judge = Judge(at_once)
        provider = Scripted(lambda name, attempt: GOOD + str(attempt))
        inquire(tmp_path / str(at_once), provider, *names, judges=judge)
        assert max(judge.lengths) == most
        assert sum(judge.lengths) == 40


@pytest.mark.slow
def test_no_question_is_asked_twice(tmp_path: Path) -> None:
    first = Scripted(lambda name, attempt: BAD + str(attempt))
    inquire(tmp_path, first, "one", "two")
    again = Scripted(lambda name, attempt: GOOD)
    inquiry = inquire(tmp_path, again, "one", "two")
    assert again.asked == []
    assert inquiry.num_asked == 10


@pytest.mark.parametrize("at_once", [1, 2])
def test_answers_of_a_provider_that_goes_down_are_kept(tmp_path: Path, at_once: int) -> None:
    provider = Scripted(lambda name, attempt: GOOD + str(attempt), width=2, down_after=3)
    inquiry = inquire(tmp_path, provider, "one", "two", "three", judges=Judge(at_once))
    assert inquiry.num_satisfied == 1
    assert inquiry.num_cut == 2
    with Ledger.read(tmp_path) as ledger:
        assert ledger.sql("from completions").height == 3


def test_known_answers_are_used_while_the_provider_is_down(tmp_path: Path) -> None:
    inquire(tmp_path, Scripted(lambda name, attempt: GOOD + str(attempt)), "two", "three")
    down = Scripted(lambda name, attempt: GOOD, down_after=0)
    inquiry = inquire(tmp_path, down, "one", "two", "three")
    assert (inquiry.num_satisfied, inquiry.num_cut) == (2, 1)


def test_a_later_run_asks_the_questions_that_a_provider_left_open(tmp_path: Path) -> None:
    inquire(tmp_path, Scripted(lambda n, a: GOOD + str(a), down_after=1), "one", "two")
    up = Scripted(lambda name, attempt: GOOD + str(attempt))
    inquiry = inquire(tmp_path, up, "one", "two")
    assert inquiry.num_satisfied == 2
    assert len(up.asked) == 3


def test_an_answer_is_stored_raw_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.generate.keep_completion", kill)
    with pytest.raises(KeyboardInterrupt):
        inquire(tmp_path, Scripted(lambda name, attempt: GOOD), "one")
    with Ledger.read(tmp_path) as ledger:
        row = ledger.sql("select candidate_id, decode(answer) as answer from completions").row(0)
    assert row[0] is None
    assert GOOD in row[1]


def test_a_spent_budget_ends_the_stage_like_a_provider_that_is_down(tmp_path: Path) -> None:
    class Poor(Scripted):
        @contextmanager
        def _opened(self, receipts: Receipts) -> Iterator[Any]:
            def answer() -> Completion:
                raise BudgetError("provider scripted: 1 of 1 USD are spent")

            yield SimpleNamespace(ask=lambda request: None, answer=answer)

    inquiry = inquire(tmp_path, Poor(lambda name, attempt: GOOD), "one")
    assert inquiry.num_cut == 1
