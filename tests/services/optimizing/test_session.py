"""Tests of the search for one module: turns, copies, budgets, and what a later run takes over."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cudal1.candidate import Candidate, Completion
from cudal1.errors import ProviderError
from cudal1.ledger import Ledger
from cudal1.llm.provider import Exchange, Receipts, Request, completion_of
from cudal1.problem import DeviceClass, Problem
from cudal1.program.backends import Backend
from cudal1.prompts.prompt import DeviceFacts, Paragraph, PromptStyle, generation_prompt
from cudal1.protocol import EvalProtocol
from cudal1.services.judging import VerdictSource
from cudal1.services.optimizing.authors import Author
from cudal1.services.optimizing.budget import Budget, Meter
from cudal1.services.optimizing.session import DRY_TURNS, STAGE, WISHES, Session
from cudal1.services.optimizing.state import State
from cudal1.services.optimizing.tuner import TUNER, TunerProvider, TunerSettings
from cudal1.services.optimizing.unanswered import Unanswered
from cudal1.settings import protocols
from cudal1.settings.provider_settings import ReplaySettings, RewriterSettings
from cudal1.suite.loader import problem_of
from cudal1.verdict import Verdict
from tests.tasks.played import judged, toys

PROBLEM = toys("rows")[0]
FACTS = DeviceFacts(
    device="cpu", architecture="x86_64", memory="none", cuda_version="none", torch_version="2"
)
FREE = RewriterSettings(kind="rewriter", teacher="fuser")
OTHER = ReplaySettings(kind="replay", path=None)
Write = Callable[[Request], str]


def version(number: int, *, words: str = "") -> str:
    return (
        "```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n        return x + {number}{words}\n```"
    )


def numbered(request: Request) -> str:
    return version(request.attempt)


@dataclass
class FakeProvider:
    """A provider that writes what a function says, and remembers what it was asked."""

    name: str
    write: Write = numbered
    asked: list[str] = field(default_factory=list[str])
    fails: str | None = None
    is_seeded = False
    width = 1

    @property
    def fingerprint(self) -> str:
        return self.name

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[Exchange]:
        yield FakeExchange(self, receipts)


class FakeExchange:
    def __init__(self, provider: FakeProvider, receipts: Receipts) -> None:
        self._provider = provider
        self._receipts = receipts
        self._waiting: list[Request] = []

    def ask(self, request: Request) -> None:
        self._waiting.append(request)

    def answer(self) -> Completion:
        if self._provider.fails:
            raise ProviderError(self._provider.fails)
        request = self._waiting.pop(0)
        self._provider.asked.append(request.id)
        text = self._provider.write(request)
        completion = completion_of(
            request, provider=self._provider.name, text=text, finish_reason="stop"
        )
        self._receipts.arrived(completion)
        return completion


class FakeJudge:
    """A source of verdicts that finds everything four times as fast, and `wrong` wrong."""

    def __init__(self, ledger: Ledger, protocol: EvalProtocol) -> None:
        self.device = SimpleNamespace(kind="cpu", device_class=DeviceClass.CPU)
        self.protocol = protocol
        self.width = 1
        self.num_judged = 0
        self.judged: list[str] = []
        self._ledger = ledger

    def judge_all(self, asked: Sequence[tuple[Problem, Candidate]], **_: Any) -> list[Verdict]:
        found: list[Verdict] = []
        for _problem, candidate in asked:
            known = self._ledger.verdict(candidate, device_kind="cpu", protocol_id=self.protocol.id)
            if known is None:
                known = judged(candidate, self.protocol, "cpu").verdict
                self._ledger.add_verdict(known, ())
                self.num_judged += 1
                self.judged.append(candidate.id)
            found.append(known)
        return found


@dataclass
class Ran:
    reason: str
    state: State
    judge: FakeJudge


@pytest.fixture
def protocol() -> EvalProtocol:
    return protocols.load("cpu")


def _author(provider: FakeProvider | TunerProvider, free: tuple[str, ...]) -> Author:
    if isinstance(provider, TunerProvider):
        return Author(provider.name, TunerSettings(), provider)
    return Author(provider.name, FREE if provider.name in free else OTHER, provider)


def run(
    folder: Path,
    protocol: EvalProtocol,
    *providers: FakeProvider | TunerProvider,
    verdicts: int | None = 6,
    free: tuple[str, ...] = (),
    backend: Backend | None = None,
) -> Ran:
    state = State()
    with Ledger.open(folder) as ledger:
        ledger.begin(STAGE, run="one")
        ledger.add_protocol(protocol)
        judge = FakeJudge(ledger, protocol)
        session = Session(
            ledger,
            cast(VerdictSource, judge),
            PROBLEM,
            [_author(p, free) for p in providers],
            Meter(Budget(verdicts=verdicts), lambda: 0.0),
            state,
            Unanswered(folder / "asked"),
            facts=FACTS,
            profile=None,
            backend=backend,
        )
        reason = session.run()
    return Ran(reason, state, judge)


def test_the_search_ends_when_its_verdicts_are_made(tmp_path: Path, protocol: EvalProtocol) -> None:
    ran = run(tmp_path, protocol, FakeProvider("one"), verdicts=5)
    assert ran.reason == "the 5 verdicts are made"
    assert len(ran.judge.judged) == 5


def test_free_authors_are_asked_until_they_are_dry_before_others(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    order: list[str] = []

    def noting(name: str, write: Write) -> Write:
        def noted(request: Request) -> str:
            order.append(name)
            return write(request)

        return noted

    free = FakeProvider("free", noting("free", lambda _: version(0)))
    other = FakeProvider("other", noting("other", numbered))
    run(tmp_path, protocol, other, free, verdicts=3, free=("free",))
    assert order[0] == "free"
    assert "free" not in order[order.index("other") :]


def test_copies_of_an_earlier_answer_are_not_judged_again(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    provider = FakeProvider("one", lambda r: version(1, words=f"  # number {r.attempt}"))
    ran = run(tmp_path, protocol, provider)
    assert len(ran.judge.judged) == 1
    assert ran.state.tally("one").num_copies == len(provider.asked) - 1


def test_an_author_that_writes_only_prose_is_not_asked_for_ever(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    provider = FakeProvider("one", lambda _: "I would fuse the loops.")
    ran = run(tmp_path, protocol, provider)
    assert ran.reason == f"no author is left to ask: one: {DRY_TURNS} turns brought no new program"
    assert ran.state.tally("one").num_unusable == len(provider.asked)
    assert ran.judge.judged == []


def test_an_author_that_refuses_does_not_end_the_search_of_others(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    refusing = FakeProvider("refusing", fails="HTTP 401: set its key")
    ran = run(tmp_path, protocol, refusing, FakeProvider("other"))
    assert ran.reason == "the 6 verdicts are made"
    assert ran.state.best is not None
    assert ran.state.best.author == "other"


def test_if_every_author_refuses_the_reasons_are_told(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    with pytest.raises(ProviderError, match="no author could be asked: one: HTTP 401: set its key"):
        run(tmp_path, protocol, FakeProvider("one", fails="HTTP 401: set its key"))


def test_a_later_run_asks_and_judges_nothing_a_second_time(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    provider = FakeProvider("one")
    first = run(tmp_path, protocol, provider, verdicts=5)
    second = run(tmp_path, protocol, provider, verdicts=5)
    assert len(set(provider.asked)) == len(provider.asked)
    assert not set(first.judge.judged) & set(second.judge.judged)
    assert len(second.state.finds) == 10
    assert second.state.best is not None


def test_answers_that_a_run_had_no_budget_to_judge_are_judged_first_by_the_next(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    provider = FakeProvider("one")
    run(tmp_path, protocol, provider, verdicts=1, free=("one",))
    num_asked = len(provider.asked)
    second = run(tmp_path, protocol, provider, verdicts=num_asked - 1, free=("one",))
    assert len(provider.asked) == num_asked
    assert len(second.judge.judged) == num_asked - 1


def test_a_question_that_a_kill_left_without_an_answer_is_asked_again_under_its_id(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    def killed_at_the_third(request: Request) -> str:
        if request.attempt == 2:
            raise KeyboardInterrupt
        return numbered(request)

    provider = FakeProvider("one", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, protocol, provider)
    provider.write = numbered
    lost, answered = provider.asked[2], provider.asked[:2]
    run(tmp_path, protocol, provider)
    assert provider.asked.count(lost) == 2
    assert [provider.asked.count(each) for each in answered] == [1, 1]


def test_an_answer_that_was_stored_and_not_read_is_not_asked_for_again(
    tmp_path: Path, protocol: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = FakeProvider("one")
    with monkeypatch.context() as patch:
        patch.setattr(
            "cudal1.services.optimizing.session.candidates",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, protocol, provider)
    stored = list(provider.asked)
    second = run(tmp_path, protocol, provider, verdicts=len(stored))
    assert provider.asked == stored
    assert len(second.judge.judged) == len(stored)


def test_failures_reach_later_prompts_with_their_reason(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    seen: list[str] = []

    def write(request: Request) -> str:
        seen.append(request.prompt.messages[0].content)
        return version(request.attempt, words=" + wrong")

    run(tmp_path, protocol, FakeProvider("one", write), verdicts=20)
    assert any("Its output is wrong: it is" in text for text in seen)


def tunable(number: int) -> str:
    text = version(number, words=" * BLOCK")
    return text.replace("import torch", "import torch\n\nBLOCK = 64", 1)


def test_variants_of_a_version_with_parameters_are_judged_and_descend_from_it(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    ran = run(
        tmp_path,
        protocol,
        FakeProvider("one", lambda r: tunable(r.attempt)),
        TunerProvider(),
        verdicts=12,
    )
    tuned = [find for find in ran.state.finds.values() if find.author == TUNER]
    assert tuned
    with Ledger.open(tmp_path) as ledger:
        for find in tuned:
            (row,) = ledger.sql(
                "select exemplar_ids from completions where candidate_id = $id",
                {"id": find.candidate.id},
            ).to_dicts()
            (parent,) = row["exemplar_ids"]
            assert "BLOCK = 64" in ran.state.finds[parent].candidate.source
            assert "BLOCK = 64" not in find.candidate.source


def test_authors_are_told_how_to_expose_parameters_where_these_are_tuned(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    seen: list[str] = []

    def write(request: Request) -> str:
        seen.append(request.prompt.messages[0].content)
        return numbered(request)

    run(tmp_path / "with", protocol, FakeProvider("one", write), TunerProvider(), verdicts=1)
    run(tmp_path / "without", protocol, FakeProvider("one", write), verdicts=1)
    assert ["# tune: BLOCK in" in text for text in (seen[0], seen[-1])] == [True, False]


def test_a_later_run_tunes_on_and_judges_no_variant_twice(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    one = FakeProvider("one", lambda _: tunable(1))
    first = run(tmp_path, protocol, one, TunerProvider(), verdicts=3)
    second = run(tmp_path, protocol, one, TunerProvider(), verdicts=None)
    assert second.reason.endswith("tuner: found no parameters that were not tried")
    assert not set(first.judge.judged) & set(second.judge.judged)
    blocks = {
        find.candidate.source.split("BLOCK = ")[1][:4] for find in second.state.finds.values()
    }
    assert {int(each) for each in blocks} == {16, 32, 64, 128, 256}


def test_a_tuner_without_parameters_is_not_asked(tmp_path: Path, protocol: EvalProtocol) -> None:
    ran = run(tmp_path, protocol, FakeProvider("one"), TunerProvider(), verdicts=3)
    assert TUNER not in ran.state.tallies


KERNEL = """```python
import torch
import triton


@triton.jit
def add_kernel(x):
    pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        add_kernel[(NUMBER,)](x)
        return x
```"""


def test_only_versions_in_the_asked_language_are_judged_and_prompts_ask_for_it(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    seen: list[str] = []

    def write(request: Request) -> str:
        seen.append(request.prompt.messages[0].content)
        is_asked_for = request.attempt % 2
        number = str(request.attempt)
        return KERNEL.replace("NUMBER", number) if is_asked_for else numbered(request)

    run(tmp_path, protocol, FakeProvider("one", numbered), verdicts=2)  # in plain PyTorch
    ran = run(tmp_path, protocol, FakeProvider("two", write), verdicts=4, backend=Backend.TRITON)
    assert "Write your own kernels, in Triton." in seen[0]
    assert ran.state.best is not None
    sources = [find.candidate.source for find in ran.state.finds.values()]
    assert all("add_kernel" in source for source in sources)
    assert ran.state.tally("two").num_unusable == len(sources)


@pytest.mark.parametrize("backend", Backend)
def test_every_language_can_be_asked_for(backend: Backend) -> None:
    paragraph = Paragraph(template="backend", values=WISHES[backend])
    prompt = generation_prompt(PROBLEM, style=PromptStyle.PAPER, facts=FACTS, behind=[paragraph])
    assert WISHES[backend]["how"] in prompt.messages[0].content


LOOP = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.stack([torch.relu(x[i]) for i in range(x.shape[0])])


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []
"""
IN_CHUNKS = """import torch

CHUNK = 4  # tune: CHUNK in 1, 4, 256


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.cat([torch.relu(each) for each in x.split(CHUNK)])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_judge_finds_a_tuned_version_faster_than_the_one_it_comes_from(
    tmp_path: Path, protocol: EvalProtocol
) -> None:
    problem = problem_of(LOOP, tmp_path / "loop.py", device_class=DeviceClass.CPU)
    one = FakeProvider("one", lambda _: f"```python\n{IN_CHUNKS}```")
    state = State()
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.begin(STAGE, run="one")
        for each in (protocol, protocol.checks_only()):
            ledger.add_protocol(each)
        with VerdictSource(ledger, DeviceClass.CPU, protocol, None, num_policies=0) as judge:
            session = Session(
                ledger,
                judge,
                problem,
                [_author(one, ()), _author(TunerProvider(), ())],
                Meter(Budget(minutes=9), lambda: 0.0),
                state,
                Unanswered(tmp_path / "asked"),
                facts=FACTS,
                profile=None,
            )
            session.run()
    assert len(state.finds) == 3
    assert state.best is not None
    assert state.best.author == TUNER
    assert "CHUNK = 256" in state.best.candidate.source
    (first,) = [find for find in state.finds.values() if find.author == "one"]
    assert state.best.speedup > first.speedup
