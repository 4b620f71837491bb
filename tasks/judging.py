"""Where ledger and harness meet: a verdict is looked up before it is made, and kept when it is."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import polars as pl

from cudal1.candidate import Candidate, Completion
from cudal1.extract import extract
from cudal1.harness import Judgement, Pool, facts_of, find_device
from cudal1.harness.docket import Docket
from cudal1.harness.kept import default_folder
from cudal1.harness.sharing import Sharing, sharing
from cudal1.ledger import Ledger
from cudal1.ledger.shards import read_parquet
from cudal1.params import Params
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompt import DeviceFacts
from cudal1.protocol import EvalProtocol
from cudal1.verdict import SecondOpinion, Verdict
from tasks.repeating import veto_of
from tasks.reviewing import Reviewer, reviewer
from tasks.stage import DATA

WAIT_S = 600.0
"""For somebody else who is judging on the device, such as a person with `cudal1 judge`."""


class Bench:
    """Gives verdicts: known ones from the ledger, new ones from the harness.

    The harness is started only when something is really new, so that a repeated stage is cheap: for
    one candidate after the other (`verdict`, `check`), or for many at once (`verdicts`). A
    success that is suspicious goes to the adversarial judge, where there is one, and what it or a
    person has vetoed is no success.
    """

    def __init__(
        self, ledger: Ledger, device_class: DeviceClass, protocol: EvalProtocol,
        reviewer: Reviewer | None, *, num_policies: int = 1,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._reviewer = reviewer
        self._stack = ExitStack()
        self._pool: Pool | None = None
        self._docket: Docket | None = None
        self.sharing: Sharing = sharing(device_class, num_policies=num_policies)
        self.device = self.sharing.devices[0]
        self.protocol = protocol
        self.num_judged = 0
        self.num_reused = 0
        self.judge_s = 0.0
        """What new verdicts took, on all devices together; without the next."""
        self.build_s = 0.0
        """For how long devices waited for candidates to start and be built."""

    def verdict(self, problem: Problem, candidate: Candidate) -> Verdict:
        """The full verdict on a candidate of a problem."""
        known = self._known(candidate, timing=True)
        verdict = known or self._judge(problem, candidate, timing=True)
        return self._less_vetoes(problem, candidate, verdict, timing=True)

    def check(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Whether a candidate is executable and correct; its speed is left for later.

        A failure is a full verdict, since timing is the last gate; it is never judged again.
        """
        known = self._known(candidate, timing=False)
        verdict = known or self._judge(problem, candidate, timing=False)
        return self._less_vetoes(problem, candidate, verdict, timing=False)

    def expect(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> None:
        """Say that `verdicts` will be asked for this: what can begin, begins.

        New candidates are built, and judged where no policy works at the moment (`Docket`).
        """
        if self._find(candidate, timing=timing) is None:
            assert self._pool is None, "its device is held for one candidate at a time"
            if self._docket is None:
                self._docket = self._stack.enter_context(Docket(
                    self.sharing, self.protocol, self._settled, record_of=self._record,
                    builds=default_folder(), wait_s=WAIT_S,
                ))  # fmt: skip
            self._docket.add(problem, candidate, timing=timing)

    def verdicts(
        self, asked: Sequence[tuple[Problem, Candidate]], *, timing: bool = True
    ) -> list[Verdict]:
        """As `verdict` or, without `timing`, `check`, in order; by all devices together.

        Equal sources are judged once.
        """
        for problem, candidate in asked:
            self.expect(problem, candidate, timing=timing)
        fresh = {} if self._docket is None else self._docket.collect()
        found: list[Verdict] = []
        for problem, candidate in asked:
            verdict = fresh.pop(candidate.id, None) or self._known(candidate, timing=timing)
            assert verdict is not None
            found.append(self._less_vetoes(problem, candidate, verdict, timing=timing))
        return found

    def _known(self, candidate: Candidate, *, timing: bool) -> Verdict | None:
        known = self._find(candidate, timing=timing)
        self.num_reused += known is not None
        return known

    def _find(self, candidate: Candidate, *, timing: bool) -> Verdict | None:
        """In the ledger; who has been timed has been checked."""
        protocols = [self.protocol] if timing else [self.protocol, self.protocol.checks_only()]
        found = (
            self._ledger.verdict(candidate, device_kind=self.device.kind, protocol_id=each.id)
            for each in protocols
        )
        return next((verdict for verdict in found if verdict is not None), None)

    def _judge(self, problem: Problem, candidate: Candidate, *, timing: bool) -> Verdict:
        assert self._docket is None, "its devices are held for many candidates at once"
        if self._pool is None:
            self._pool = self._stack.enter_context(Pool(self.device, self.protocol, wait_s=WAIT_S))
        record = self._record(problem, candidate) if timing else None
        judgement = self._pool.judge(problem, candidate, timing=timing, record=record)
        return self._kept(judgement, record)

    def _settled(self, problem: Problem, candidate: Candidate, judgement: Judgement) -> Verdict:
        return self._kept(judgement, self._record(problem, candidate))

    def _kept(self, judgement: Judgement, record: float | None) -> Verdict:
        second_opinion = SecondOpinion.OFF
        if self._reviewer is not None:
            why = self._reviewer.suspicion(judgement.verdict, record)
            second_opinion = SecondOpinion.NOT_NEEDED if why is None else SecondOpinion.ASKED
        verdict = judgement.verdict.model_copy(update={"second_opinion": second_opinion})
        self._ledger.add_verdict(verdict, judgement.samples)
        self.num_judged += 1
        self.judge_s += judgement.prepare_s + verdict.judge_s - judgement.build_s
        self.build_s += judgement.build_s
        return verdict

    def _less_vetoes(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, *, timing: bool
    ) -> Verdict:
        """The verdict less what a person or, about speed, the adversarial judge vetoes."""
        if not verdict.is_successful:
            return verdict
        veto = veto_of(self._ledger, candidate)
        if veto is None and timing and self._reviewer is not None:
            why = self._suspicion(problem, candidate, verdict, self._reviewer)
            if why is not None:
                self._reviewer.review(problem, candidate, verdict, why)
                veto = self._ledger.veto(candidate)
        return verdict if veto is None else verdict.vetoed(veto)

    def _suspicion(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, judge: Reviewer
    ) -> str | None:
        """Why the judge is to be asked; what was decided when there was one stays decided."""
        if verdict.second_opinion is SecondOpinion.NOT_NEEDED:
            return None
        why = judge.suspicion(verdict, self._record(problem, candidate))
        was_asked = verdict.second_opinion is SecondOpinion.ASKED
        return why or ("it was suspicious when it was judged" if was_asked else None)

    @property
    def num_unreviewed(self) -> int:
        """Suspicious successes that stand without a second opinion."""
        return 0 if self._reviewer is None else len(self._reviewer.unreviewed)

    def _record(self, problem: Problem, candidate: Candidate) -> float | None:
        found = self._ledger.query(
            "record", problem_id=problem.id, device_kind=self.device.kind,
            protocol_id=self.protocol.id, candidate_id=candidate.id,
        )  # fmt: skip
        return found.item(0, "certified")

    def close(self) -> None:
        """Stop the harness, if it runs."""
        self._stack.close()


@contextmanager
def bench(ledger: Ledger, params: Params, *, num_policies: int = 1) -> Generator[Bench]:
    """A bench with the stage's device and protocol, beside so many processes with a policy."""
    for protocol in (params.protocol, params.protocol.checks_only()):
        ledger.add_protocol(protocol)
    with reviewer(ledger, params.hack_judge, device_facts(params)) as second:
        opened = Bench(ledger, params.device, params.protocol, second, num_policies=num_policies)
        try:
            yield opened
        finally:
            opened.close()


def device_facts(params: Params) -> DeviceFacts:
    """What prompts may say of the device that the stages judge on."""
    return _facts(params.device)


@cache
def _facts(device_class: DeviceClass) -> DeviceFacts:
    return facts_of(find_device(device_class))


def keep_completion(ledger: Ledger, completion: Completion) -> Candidate | None:
    """Store what was found in an answer: a candidate, or the reason why there is none."""
    found = extract(completion.text)
    candidate = (
        None
        if found.source is None
        else Candidate(problem_id=completion.problem_id, source=found.source)
    )
    ledger.add_completion(completion, candidate, found.reason)
    return candidate


def admitted_problems(split: Split | None = None) -> list[Problem]:
    """The problems that stage `problems` admitted."""
    frame = read_parquet(DATA / "problems.parquet").filter(pl.col("admitted"))
    columns = [name for name in frame.columns if name in Problem.model_fields]
    problems = [Problem.model_validate(row) for row in frame.select(columns).to_dicts()]
    return [problem for problem in problems if split is None or problem.split is split]


def evenly_spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Up to `count` problems, from all over the list."""
    step = max(1.0, len(problems) / count)
    return [problems[int(i * step)] for i in range(min(count, len(problems)))]


def product(path: Path) -> list[dict[str, object]]:
    """The rows of a file that an earlier stage left."""
    return read_parquet(path).to_dicts()
