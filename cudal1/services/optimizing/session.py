"""The search for faster versions of one module: authors in turns until a budget is used up.

Answers and verdicts are in the ledger when they are read. A later run begins with them: what was
answered and not judged is judged first, and no question is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from cudal1 import interrupt
from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate, Completion
from cudal1.errors import ConsentError, ProviderError
from cudal1.harness.admission.reference_profile import ReferenceProfile
from cudal1.ledger import Ledger
from cudal1.llm.provider import EXHAUSTED, has_failed
from cudal1.measurement import AT_ROOFLINE
from cudal1.problem import DeviceClass, Problem
from cudal1.program.backends import Backend, kernels_by_backend
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import DeviceFacts, Paragraph, PromptStyle
from cudal1.selection.contrast import ContrastParams, Sampling, TauUnit
from cudal1.services.answers import keep_completion
from cudal1.services.asking import Asking, asking
from cudal1.services.judging import VerdictSource
from cudal1.services.optimizing.authors import Author
from cudal1.services.optimizing.budget import Meter
from cudal1.services.optimizing.state import Find, State
from cudal1.services.optimizing.tuner import Tuner, TunerProvider, requests_for
from cudal1.services.optimizing.unanswered import Unanswered
from cudal1.services.searching.hunt import Answered, Asked, Hunt, Plan
from cudal1.services.searching.rounds import answers, candidates, judge_round, requests
from cudal1.settings.params import MethodKind
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

STAGE = "optimize"
"""Name under which the ledger files what this command asks and judges."""
CONTRAST = ContrastParams(
    num_exemplars=2,
    num_failures=2,
    bucket_width=0.1,
    bucket_capacity=64,
    tau=0.5,
    tau_unit=TauUnit.SPEEDUP,
    num_islands=1,
    island_reset_every=1,
)
"""Choice of exemplars: as in the paper, with two failures and their reasons behind them."""
SEED = 0
WISHES: dict[Backend, dict[str, str]] = {
    Backend.TRITON: {
        "language": "Triton",
        "how": "Decorate each with `@triton.jit` and launch it as `kernel[grid](...)`.",
    },
    Backend.CUDA: {
        "language": "CUDA C++",
        "how": "Compile them with `torch.utils.cpp_extension.load_inline` and `cuda_sources`.",
    },
    Backend.CUTLASS_DSL: {
        "language": "CuTe, the Python DSL of CUTLASS",
        "how": "Import `cutlass.cute as cute`, decorate kernels with `@cute.kernel` and what "
        "launches them with `@cute.jit`, and compile once with `cute.compile`.",
    },
    Backend.TILELANG: {
        "language": "TileLang",
        "how": "Import `tilelang` and `tilelang.language as T`, and decorate a function that "
        "returns a `@T.prim_func` with `@tilelang.jit`.",
    },
}
"""The words of a prompt for each language of kernels."""
DRY_TURNS = 3
"""Turns in a row without a new program after which an author is not asked again."""
PATIENCE = 12
"""New verdicts without a better one after which a best near the roofline is good enough."""


class Session:
    """The search for one module.

    Args:
        ledger: open, in the search's stage.
        judge: the source of verdicts.
        problem: the module.
        authors: the providers, in the order of their turns.
        meter: what is used of the budget.
        state: is told what is tried and found.
        unanswered: the requests of an earlier run that a kill left without an answer.
        facts: facts about the device, for prompts.
        profile: the profile of the reference, for prompts; None where there is none.
        backend: the language that versions must have a kernel in; None: any or none.
        changed: called when something is to be shown.
    """

    def __init__(
        self,
        ledger: Ledger,
        judge: VerdictSource,
        problem: Problem,
        authors: Sequence[Author],
        meter: Meter,
        state: State,
        unanswered: Unanswered,
        *,
        facts: DeviceFacts,
        profile: ReferenceProfile | None,
        backend: Backend | None = None,
        changed: Callable[[State], None] = lambda _: None,
    ) -> None:
        self.state = state
        self._ledger = ledger
        self._judge = judge
        self._unanswered = unanswered
        self._hunt = Hunt(problem)
        self._authors = authors
        self._meter = meter
        self._facts = facts
        self._profile = profile
        self._backend = backend
        self._changed = changed
        self._seen = {program_id(problem.as_candidate)}
        """The reference's program, and those of all answers."""
        self._next_attempt = 0
        self._num_turns = 0
        self._graph: float | None = None
        """Certified speedup of a CUDA graph of the reference; None where there is none."""
        self._tuner = Tuner()
        self._turns = self._in_turns()

    def run(self) -> str:
        """Search until a limit is reached; return the reason to stop, in words.

        Raises:
            ProviderError: no author can be asked, and none has ever answered.
            CudaL1Error: the problem cannot be judged, or a disk is full; what was found is kept.
        """
        pending = self._restore()
        self._judge_graph()
        self._judge_new(pending)
        with ExitStack() as stack:
            lines: dict[str, Asking] = {}
            while (reason := self._reason()) is None:
                author = next(self._turns, None)
                if author is None:
                    return self._nobody_left()
                if author.name not in lines:
                    line = asking(self._ledger, author.provider)
                    lines[author.name] = stack.enter_context(line)
                    self._ask_again(author, lines[author.name])
                if author.stopped is None and self._meter.used_up is None:
                    self._turn(author, lines[author.name])
                interrupt.check()
        return reason

    def _reason(self) -> str | None:
        if used_up := self._meter.used_up:
            return used_up
        best = self.state.best
        if best is None or self.state.num_since < PATIENCE:
            return None
        measured = best.verdict.measurement
        waited = f"and {self.state.num_since} verdicts brought no better one"
        if measured is not None and measured.is_at_roofline:
            return f"the best is near the device's limit, {waited}"
        if self._graph is not None and best.speedup * AT_ROOFLINE >= self._graph > 1:
            return f"the best is as fast as a CUDA graph of the reference, {waited}"
        return None

    def _in_turns(self) -> Iterator[Author]:
        """Yield authors that can be asked, in turns: first those that cost nothing.

        The tuner has a turn behind each of them, where there is something to tune.
        """
        tuners = [author for author in self._authors if author.is_tuner]
        writers = [author for author in self._authors if not author.is_tuner]
        for group in (
            [author for author in writers if author.is_free_and_quick],
            [author for author in writers if not author.is_free_and_quick],
        ):
            while any(author.stopped is None for author in group):
                for author in group:
                    if author.stopped is None:
                        yield author
                    yield from (each for each in tuners if self._is_tunable(each))
        for author in tuners:
            while self._is_tunable(author):
                yield author
            author.stopped = author.stopped or "found no parameters that were not tried"

    def _is_tunable(self, tuner: Author) -> bool:
        return tuner.stopped is None and self._tuner.has_any(self.state)

    def _nobody_left(self) -> str:
        said = "; ".join(f"{author.name}: {author.stopped}" for author in self._authors)
        if not any(tally.num_answers for tally in self.state.tallies.values()):
            raise ProviderError(f"no author could be asked: {said}")
        return f"no author is left to ask: {said}"

    def _restore(self) -> list[Answered]:
        """Take over what the ledger has of the module; return answers that wait for a verdict."""
        found = self._ledger.sql(
            "select c.completion_id, c.attempt, c.no_candidate_reason, decode(d.source) as source "
            "from completions c left join candidates d using (candidate_id) "
            "where c.problem_id = $problem order by c.attempt, c.completion_id",
            {"problem": self._hunt.problem.id},
        ).to_dicts()
        answered: list[Answered] = []
        for row in found:
            self._next_attempt = max(self._next_attempt, int(row["attempt"]) + 1)
            completion = self._ledger.completion(row["completion_id"])
            if completion is None or not _is_answer(completion):
                continue
            if row["source"] is not None:
                candidate = Candidate(problem_id=self._hunt.problem.id, source=row["source"])
            elif row["no_candidate_reason"] is not None:
                candidate = None
            else:  # the run was killed before it read the answer
                candidate = keep_completion(self._ledger, completion)
            answered.append(Answered(self._hunt, completion, candidate, completion.island))
        fresh = self._fresh(answered)
        known = [each for each in fresh if each.candidate and self._is_judged(each.candidate)]
        verdicts = judge_round(self._ledger, self._judge, known, number=0, advance=_not_shown)
        self._note(known, verdicts)
        self.state.num_since = 0
        return [each for each in fresh if each not in known]

    def _is_judged(self, candidate: Candidate) -> bool:
        device_kind, protocol_id = self._judge.device.kind, self._judge.protocol.id
        found = self._ledger.verdict(candidate, device_kind=device_kind, protocol_id=protocol_id)
        return found is not None

    def _judge_graph(self) -> None:
        """Judge a CUDA graph of the reference, which costs no author anything."""
        problem = self._hunt.problem
        if problem.device_class is not DeviceClass.CUDA:
            return
        self._say("judging a CUDA graph of the reference")
        graph = as_candidate(problem, Baseline.CUDA_GRAPH)
        self._ledger.add_baseline(graph, Baseline.CUDA_GRAPH)
        (verdict,) = self._judge.judge_all([(problem, graph)])
        self._graph = verdict.speedup

    def _turn(self, author: Author, line: Asking) -> None:
        """Ask one author once, and judge its new programs."""
        count = author.answers_per_turn
        if author.is_tuner or not author.is_free_and_quick:  # no more than can be judged
            count = int(min(count, self._meter.verdicts_left))
        self._say(f"asking {author.name} for {count} versions")
        asked = self._requests(author, count)
        self._next_attempt += len(asked)
        self._num_turns += 1
        if not author.is_free_and_quick:
            self._unanswered.keep(author.name, [each.request for each in asked])
        self._ask(author, line, asked)

    def _requests(self, author: Author, count: int) -> list[Asked]:
        """Return the requests of an author's turn, under new numbers of attempts."""
        first = self._next_attempt
        if isinstance(author.provider, TunerProvider):
            return requests_for(
                self._tuner.variants(self.state, count),
                author.provider,
                self._hunt,
                stage=STAGE,
                first_attempt=first,
            )
        plan = self._plan(author, count)
        return requests(
            plan, author.provider, [self._hunt], number=self._num_turns, first_attempt=first
        )

    def _ask_again(self, author: Author, line: Asking) -> None:
        """Ask what a killed run had asked an author and got no answer to, under the same ids.

        A server that was asked before then charges once for both.
        """
        left = self._unanswered.of(author.name, self._hunt.problem)
        asked = [
            Asked(self._hunt, request)
            for request in left
            if self._ledger.completion(request.id) is None
        ]
        if asked:
            self._say(f"asking {author.name} again for {len(asked)} lost versions")
            last = max(each.request.attempt for each in asked)
            self._next_attempt = max(self._next_attempt, last + 1)
            self._ask(author, line, asked)

    def _ask(self, author: Author, line: Asking, asked: Sequence[Asked]) -> None:
        """Ask an author, store the answers, and judge their new programs."""
        try:
            given = answers(line, asked)
        except (ProviderError, ConsentError) as error:
            author.stopped = str(error)
            log.warning("%s; others go on", error)
            return
        if line.stopped is not None:
            author.stopped = str(line.stopped)
            log.warning("%s; others go on", line.stopped)
        failed = [each for each in given.values() if has_failed(each)]
        self.state.tally(author.name).num_failed += len(failed)
        if failed and len(failed) == len(given):
            log.warning("%s: %s", author.name, failed[0].finish_reason)
        if any(each.finish_reason == EXHAUSTED for each in given.values()):
            author.stopped = "has no more answers"
        answered = candidates(self._ledger, asked, given)
        fresh = self._fresh([each for each in answered if _is_answer(each.completion)])
        author.num_dry = 0 if fresh else author.num_dry + 1
        if author.num_dry >= DRY_TURNS and author.stopped is None:
            author.stopped = f"{DRY_TURNS} turns brought no new program"
        self._judge_new(fresh)

    def _fresh(self, answered: Sequence[Answered]) -> list[Answered]:
        """Count answers; return those with a program that is no copy of one before.

        Where a language was asked for, its source must show a kernel in it.
        """
        found: list[Answered] = []
        for each in answered:
            tally = self.state.tally(each.completion.provider)
            tally.num_answers += 1
            if each.candidate is None or not self._is_asked_for(each.candidate):
                tally.num_unusable += 1
                continue
            self._tuner.saw(each.candidate.source)
            program = program_id(each.candidate.source)
            if program in self._seen:
                tally.num_copies += 1
                continue
            self._seen.add(program)
            found.append(each)
        return found

    def _is_asked_for(self, candidate: Candidate) -> bool:
        return self._backend is None or self._backend in kernels_by_backend(candidate.source)

    def _judge_new(self, fresh: Sequence[Answered]) -> None:
        """Judge new programs, a few at a time, while the budget lasts.

        The rest is in the ledger; the next run judges it first.
        """
        done = 0
        while done < len(fresh) and not self._meter.used_up:
            count = int(min(self._judge.width, self._meter.verdicts_left))
            some = fresh[done : done + count]
            self._say(f"judging {done + 1} of {len(fresh)} new programs")
            before = self._judge.num_judged
            verdicts = judge_round(
                self._ledger, self._judge, some, number=self._num_turns, advance=_not_shown
            )
            self._meter.num_verdicts += self._judge.num_judged - before
            self._note(some, verdicts)
            done += len(some)
            interrupt.check()

    def _note(self, answered: Sequence[Answered], verdicts: Sequence[Verdict | None]) -> None:
        for each, verdict in zip(answered, verdicts, strict=True):
            if each.candidate is not None and verdict is not None:
                self.state.judged(Find(each.candidate, verdict, each.completion.provider))
                self._changed(self.state)

    def _plan(self, author: Author, count: int) -> Plan:
        return Plan(
            stage=STAGE,
            method=MethodKind.EVOLVE,
            sampling=Sampling.BUCKET,
            contrast=CONTRAST,
            answers_per_round=count,
            prompts=author.prompts,
            seed=SEED,
            facts=self._facts,
            behind=tuple(self._behind()) if author.prompts is PromptStyle.PAPER else (),
        )

    def _behind(self) -> Iterator[Paragraph]:
        """Yield what stands behind prompts that are long enough for it."""
        if self._profile is not None:
            values = {"profile": "\n".join(self._profile.lines)}
            yield Paragraph(template="profile", values=values)
        if any(author.is_tuner for author in self._authors):
            yield Paragraph(template="tunable")
        if self._backend is not None:
            yield Paragraph(template="backend", values=WISHES[self._backend])

    def _say(self, doing: str) -> None:
        self.state.doing = doing
        self._changed(self.state)


def _is_answer(completion: Completion) -> bool:
    """Return whether an author has answered, with code or without."""
    return completion.finish_reason != EXHAUSTED and not has_failed(completion)


def _not_shown(_: int) -> None:
    """Show nothing of a round's progress: the state is shown."""
