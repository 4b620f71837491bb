"""Connect ledger and harness: a verdict is looked up before it is made, and kept afterwards."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import TracebackType
from typing import Self

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError, WorkerError
from cudal1.harness.builds.build_cache import default_folder
from cudal1.harness.device.device import find_device
from cudal1.harness.device.facts import facts_of
from cudal1.harness.device.sharing import Sharing, sharing
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.judging_queue import JudgingQueue, verdict_of
from cudal1.harness.schedule.one_device import OneDevice
from cudal1.ledger import Ledger
from cudal1.problem import DeviceClass, Problem
from cudal1.prompts.prompt import DeviceFacts
from cudal1.protocol import EvalProtocol
from cudal1.services.reviewing import Reviewer, reviewer
from cudal1.services.vetting import Vetting
from cudal1.settings.params import Params
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

WAIT_S = 600.0
"""Seconds to wait for another judge on the device, such as a person's `cudal1 judge`."""
AT_ONCE = 8
"""Candidates for each GPU that are worth having together: while one is judged others are built."""

Pair = tuple[Problem, Candidate]
Advance = Callable[[int], None]
"""A callback that takes the number of further settled candidates."""


class VerdictSource:
    """A source of verdicts: known ones from the ledger, new ones from the harness.

    The harness is started only for something new, so that a repeated stage is cheap. A caller that
    expects something new may start it early (`get_ready`).

    `judge_all` and `judge_possible` take a list that is known as a whole. All devices judge it
    together, and candidates are built beside them. A CPU is one device without free cores, so
    there candidates are built and judged one after the other. `expect` and `verdicts` serve what a
    policy writes meanwhile. A suspicious success goes to the reviewer, where there is one. A
    success that the reviewer or a person has vetoed is no success.
    """

    def __init__(
        self,
        ledger: Ledger,
        device_class: DeviceClass,
        protocol: EvalProtocol,
        reviewer: Reviewer | None,
        *,
        num_policies: int = 1,
    ) -> None:
        self._ledger = ledger
        self._vetting = Vetting(ledger, reviewer, self._record)
        self._stack = ExitStack()
        self._judge_here: OneDevice | None = None
        self._judging_queue: JudgingQueue | None = None
        self.sharing: Sharing = sharing(device_class, num_policies=num_policies)
        self.device = self.sharing.devices[0]
        self.protocol = protocol
        self.num_judged = 0
        self.num_reused = 0
        self.num_refused = 0
        """Listed candidates that cannot be judged on this device."""
        self.judge_s = 0.0
        """Seconds that new verdicts took, on all devices together, without `build_s`."""
        self.build_s = 0.0
        """Seconds that devices waited for candidates to start and be built."""

    @property
    def width(self) -> int:
        """Return the number of candidates that are judged sooner together than one by one."""
        return 1 if self._is_alone else AT_ONCE * len(self.sharing.devices)

    def judge_all(
        self, asked: Sequence[Pair], *, timing: bool = True, advance: Advance = lambda _: None
    ) -> list[Verdict]:
        """Return the full verdict on each candidate, in order; equal sources are judged once.

        Without `timing` the speed of a candidate is left open. A failure is a full verdict all the
        same, since timing is the last gate; it is never judged again.

        Raises:
            WorkerError: one of them could not be judged; what else was judged is in the ledger.
        """
        times = Counter(candidate.id for _, candidate in asked)
        found: dict[str, Verdict] = {}
        for (problem, candidate), said in self._each(asked, timing=timing):
            found[candidate.id] = self._vetting.apply_vetoes(
                problem, candidate, verdict_of(said), timing=timing
            )
            advance(times[candidate.id])
        return [found[candidate.id] for _, candidate in asked]

    def judge_possible(self, asked: Sequence[Pair], advance: Advance) -> list[Verdict | None]:
        """Judge as `judge_all`, but log what this device cannot judge, and return None for it."""
        times = Counter(candidate.id for _, candidate in asked)
        found: dict[str, Verdict] = {}
        refused: set[str] = set()
        for (problem, candidate), said in self._each(asked, timing=True):
            if not isinstance(said, Refusal):
                found[candidate.id] = self._vetting.apply_vetoes(
                    problem, candidate, said, timing=True
                )
            elif problem.id not in refused:
                refused.add(problem.id)
                log.warning(
                    "%s: %s: cannot be judged on %s: %s; `dvc repro -f -s %s` tries again",
                    self._ledger.stage,
                    problem.key,
                    self.device.kind,
                    said.reason.removeprefix(f"{problem.key}: "),
                    self._ledger.stage,
                )
            advance(times[candidate.id])
        self.num_refused += len(asked) - sum(times[key] for key in found)
        return [found.get(candidate.id) for _, candidate in asked]

    def get_ready(self) -> None:
        """Start the harness while a policy is loaded or writes: on a GPU that takes 15 seconds.

        Call this only if something new will be expected.
        """
        self._opened()

    def expect(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> None:
        """Announce that `verdicts` will be asked for this candidate, so that work on it can begin.

        New candidates are built, and judged where no policy works at the moment (`JudgingQueue`).
        """
        if self._find(candidate, timing=timing) is None:
            self._opened().add(problem, candidate, timing=timing)

    def verdicts(self, asked: Sequence[Pair], *, timing: bool = True) -> list[Verdict]:
        """Return verdicts as `judge_all` does; some of the candidates may have been expected."""
        for problem, candidate in asked:
            self.expect(problem, candidate, timing=timing)
        fresh = {} if self._judging_queue is None else self._judging_queue.collect()
        found: list[Verdict] = []
        for problem, candidate in asked:
            verdict = fresh.pop(candidate.id, None) or self._known(candidate, timing=timing)
            assert verdict is not None
            found.append(self._vetting.apply_vetoes(problem, candidate, verdict, timing=timing))
        return found

    @property
    def _is_alone(self) -> bool:
        return self.device.device_class is not DeviceClass.CUDA

    def _each(
        self, asked: Sequence[Pair], *, timing: bool
    ) -> Iterator[tuple[Pair, Verdict | Refusal]]:
        """Yield each distinct pair with the answer of the ledger or the harness, as it comes."""
        distinct = {pair[1].id: pair for pair in asked}
        new: dict[str, Pair] = {}
        for key, pair in distinct.items():
            known = self._known(pair[1], timing=timing)
            if known is None:
                new[key] = pair
            else:
                yield pair, known
        self.num_reused += len(asked) - len(distinct)
        if new and self._is_alone:
            yield from self._one_by_one(new.values(), timing=timing)
        elif new:
            judged = self._opened().judge_all(new.values(), timing=timing)
            yield from ((new[key], said) for key, said in judged)

    def _one_by_one(
        self, new: Iterable[Pair], *, timing: bool
    ) -> Iterator[tuple[Pair, Verdict | Refusal]]:
        refused: dict[str, Refusal] = {}
        """Problems that are not tried again."""
        for problem, candidate in new:
            try:
                said = refused.get(problem.id) or self._judge(problem, candidate, timing=timing)
            except (SuiteError, WorkerError) as error:
                said = refused[problem.id] = Refusal(problem.id, candidate.id, str(error))
            yield (problem, candidate), said

    def _opened(self) -> JudgingQueue:
        assert self._judge_here is None, "its device is held for one candidate at a time"
        if self._judging_queue is None:
            self._judging_queue = self._stack.enter_context(
                JudgingQueue(
                    self.sharing,
                    self.protocol,
                    self._settled,
                    record_of=self._record,
                    builds=default_folder(),
                    wait_s=WAIT_S,
                )
            )
        return self._judging_queue

    def _known(self, candidate: Candidate, *, timing: bool) -> Verdict | None:
        known = self._find(candidate, timing=timing)
        self.num_reused += known is not None
        return known

    def _find(self, candidate: Candidate, *, timing: bool) -> Verdict | None:
        """Return the ledger's verdict; a timed candidate has been checked, too."""
        protocols = [self.protocol] if timing else [self.protocol, self.protocol.checks_only()]
        found = (
            self._ledger.verdict(candidate, device_kind=self.device.kind, protocol_id=each.id)
            for each in protocols
        )
        return next((verdict for verdict in found if verdict is not None), None)

    def _judge(self, problem: Problem, candidate: Candidate, *, timing: bool) -> Verdict:
        assert self._judging_queue is None, "its devices are held for many candidates at once"
        if self._judge_here is None:
            one = OneDevice(self.device, self.protocol, wait_s=WAIT_S)
            self._judge_here = self._stack.enter_context(one)
        record = self._record(problem, candidate) if timing else None
        judgement = self._judge_here.judge(problem, candidate, timing=timing, record=record)
        return self._settled(problem, candidate, judgement)

    def _settled(self, problem: Problem, candidate: Candidate, judgement: Judgement) -> Verdict:
        verdict = self._vetting.marked(problem, candidate, judgement.verdict)
        self._ledger.add_verdict(verdict, judgement.samples)
        self.num_judged += 1
        self.judge_s += judgement.prepare_s + verdict.judge_s - judgement.build_s
        self.build_s += judgement.build_s
        return verdict

    @property
    def num_unreviewed(self) -> int:
        """Return the number of suspicious successes that have no second opinion."""
        return self._vetting.num_unreviewed

    def _record(self, problem: Problem, candidate: Candidate) -> float | None:
        found = self._ledger.query(
            "record",
            problem_id=problem.id,
            device_kind=self.device.kind,
            protocol_id=self.protocol.id,
            candidate_id=candidate.id,
        )
        return found.item(0, "certified")

    def __enter__(self) -> Self:
        """Start nothing before it is needed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the harness, if it runs; at once after an error or a Ctrl-C."""
        self._stack.__exit__(kind, error, trace)


@contextmanager
def verdict_source(
    ledger: Ledger, params: Params, *, num_policies: int = 1
) -> Generator[VerdictSource]:
    """Yield a source of verdicts with the stage's device and protocol.

    It works beside `num_policies` policy processes. Without one (0), all devices judge.
    """
    for protocol in (params.protocol, params.protocol.checks_only()):
        ledger.add_protocol(protocol)
    with (
        reviewer(ledger, params.reviewer, device_facts(params)) as second,
        VerdictSource(
            ledger, params.device, params.protocol, second, num_policies=num_policies
        ) as opened,
    ):
        yield opened


def device_facts(params: Params) -> DeviceFacts:
    """Return what prompts may say of the device that the stages judge on."""
    return _facts(params.device)


@cache
def _facts(device_class: DeviceClass) -> DeviceFacts:
    return facts_of(find_device(device_class))
