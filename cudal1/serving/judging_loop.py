"""Take submissions from the durable queue, have them judged, and keep what comes of them.

A verdict is in the ledger before its submission is answered, and the ledger is asked before a
candidate is judged. So a kill at any moment loses no verdict, and none is made twice.

Threat: a client that submits another's source would learn from a quick answer that it was submitted
before. So a known verdict takes its turn, and as much of the devices' time as making it took. Where
all clients are one team, `one_team`, it is given at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error, DeviceError, StoreError
from cudal1.harness.builds.toolchain import missing_for, remedy
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.fleet import RecordOf
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.services.vetting import Vetting
from cudal1.serving.bench import Bench, Rules
from cudal1.serving.fair_shares import FairShares
from cudal1.serving.store import SubmissionStore, Waiting
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

REST_AFTER_S = 60.0
"""Seconds without work after which the devices are given back."""
RETRY_S = 5.0
"""Seconds before the next try after the devices failed."""
DEPTH = {DeviceClass.CPU: 2, DeviceClass.FAKE: 2, DeviceClass.CUDA: 8}
"""Candidates of a batch for each device: while one is judged, the next is built."""
MAX_FAILURES = 3
"""Failures of the judges with a candidate, the last ones with it alone, after which it is
refused."""
USUAL_WEIGHT = 0.1
"""Weight of one verdict in the device seconds that the next ones are expected to take."""

ShareOf = Callable[[str], float]
Settled = Callable[[Waiting, Verdict | str, float], None]
"""A function that hears of each answer, with the device seconds that it took."""


@dataclass(frozen=True)
class _Task:
    waiting: Waiting
    problem: Problem
    protocol: EvalProtocol
    """The protocol of the fleet; the verdict's may be without timing."""
    known: Verdict | None = None
    """The verdict that the ledger has already."""

    @property
    def candidate(self) -> Candidate:
        return self.waiting.candidate

    @property
    def timing(self) -> bool:
        return self.waiting.asks.timing

    @property
    def verdict_protocol(self) -> EvalProtocol:
        return self.protocol if self.timing else self.protocol.checks_only()

    def goes_with(self, batch: Sequence[_Task]) -> bool:
        """Return whether it can be judged together with others; equal ones are judged once."""
        is_alike = (self.protocol, self.timing) == (batch[0].protocol, batch[0].timing)
        return is_alike and self.candidate.id not in {each.candidate.id for each in batch}


class JudgingLoop:
    """The thread that judges.

    Args:
        store: the durable queue.
        ledger: open, with a stage that has begun; only the thread uses it.
        bench: the devices.
        problems: the problems of the server's suites, by id.
        rules: what is judged by.
        share_of: returns a client's share.
        settled: hears of each answer after it is stored.
        one_team: whether a verdict that another client has caused is given at once.
    """

    def __init__(
        self,
        store: SubmissionStore,
        ledger: Ledger,
        bench: Bench,
        problems: Mapping[str, Problem],
        rules: Rules,
        *,
        share_of: ShareOf,
        settled: Settled,
        one_team: bool,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._bench = bench
        self._problems = problems
        self._rules = rules
        self._share_of = share_of
        self._settled = settled
        self._one_team = one_team
        self._shares = FairShares()
        self._vetting = Vetting(ledger, None, lambda *_: None)
        self._noted: set[str] = set()
        """Ids of problems and protocols that are in the ledger."""
        self._usual_s = 1.0
        """Device seconds of a verdict, as those of the last ones."""
        self._num_failures = Counter[int]()
        """Failures of the judges by submission; those that failed with it are judged alone."""
        self._is_stopping = False
        self._turn = threading.Condition()
        self._has_news = False
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self.complaint: str | None = None
        """The reason why nothing is judged although something waits."""
        self.failure: CudaL1Error | None = None
        """The error that ended the thread."""
        self.device_kind: str | None = None

    def start(self) -> None:
        """Start the thread; it takes up what waited when an earlier server ended."""
        self._thread.start()

    def notify(self) -> None:
        """Tell the thread that something new waits."""
        with self._turn:
            self._has_news = True
            self._turn.notify()

    def stop(self) -> None:
        """End the thread and the devices' processes; what is being judged waits again."""
        with self._turn:
            self._is_stopping = True
            self._turn.notify()
        self._bench.stop()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_judging(self) -> bool:
        """Return whether the thread works, without a complaint."""
        return self.is_alive and self.complaint is None

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                if not self._judge_batch():
                    self._wait_for_news()
        except CudaL1Error as error:  # of the queue or the ledger
            self.failure = error
        finally:
            self._bench.leave()

    def _wait_for_news(self) -> None:
        with self._turn:
            has_come = self._turn.wait_for(
                lambda: self._has_news or self._is_stopping, timeout=REST_AFTER_S
            )
            self._has_news = False
        if not has_come:
            self._bench.rest()

    def _judge_batch(self) -> bool:
        """Judge some of the submissions that wait; return whether there were any."""
        batch: list[_Task] = []
        try:
            batch += self._next_batch()
            if not batch:
                return False
            self._judge(batch)
            self.complaint = None
            for task in batch:
                self._num_failures.pop(task.waiting.received, None)
        except StoreError:
            raise
        except CudaL1Error as error:
            self._bench.leave()
            if not self._is_stopping:
                self._failed(batch, error)
        return True

    def _failed(self, batch: Sequence[_Task], error: CudaL1Error) -> None:
        """Wait before the next try; refuse a candidate with which the judges fail each time."""
        if self.complaint is None:
            log.warning("serve: %s; trying again until it judges", error)
        self.complaint = str(error)
        if not isinstance(error, DeviceError):  # it is busy, or absent
            self._num_failures.update(task.waiting.received for task in batch)
            if len(batch) == 1 and self._is_suspect(batch[0].waiting, MAX_FAILURES):
                del self._num_failures[batch[0].waiting.received]
                self._answer(batch[0].waiting, f"the judges failed with it: {error}", 0.0)
                return
        self._pause(RETRY_S)

    def _is_suspect(self, waiting: Waiting, num_failures: int = 1) -> bool:
        return self._num_failures[waiting.received] >= num_failures

    def _pause(self, seconds: float) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._is_stopping, timeout=seconds)

    def _next_batch(self) -> list[_Task]:
        """Return what is judged next: of one protocol, by the clients' shares."""
        self.device_kind = self._bench.device_kind
        most = DEPTH[self._rules.device_class] * self._bench.num_devices
        clients = self._store.waiting_clients()
        queues = {client: self._store.waiting(client, limit=most) for client in clients}
        batch: list[_Task] = []
        while len(batch) < most and any(queues.values()):
            client = self._shares.next_of([name for name, queue in queues.items() if queue])
            task = self._task(queues[client].pop(0))
            if task is None:
                continue
            is_alone = self._is_suspect(task.waiting) or task.known is not None
            if batch and (is_alone or not task.goes_with(batch)):
                queues[client].clear()  # its later ones are not judged before it
                continue
            batch.append(task)
            self._shares.charge(client, self._usual_s, self._share_of(client))
            if is_alone:
                break
        return batch

    def _task(self, waiting: Waiting) -> _Task | None:
        """Return what is to be judged; a submission that cannot be judged is answered instead."""
        problem_id = waiting.candidate.problem_id
        problem = self._problems.get(problem_id) or self._store.own_problem(problem_id)
        if problem is None:
            self._answer(waiting, "its problem is in none of the server's suites", 0.0)
            return None
        missing = missing_for(waiting.candidate.source, self._rules.device_class)
        if missing and self._bench.is_here:
            self._answer(waiting, f"the server cannot build it: it {remedy(missing)}", 0.0)
            return None
        task = _Task(waiting, problem, waiting.asks.protocol(self._rules.protocol))
        known = self._ledger.verdict(
            task.candidate,
            device_kind=self._bench.device_kind,
            protocol_id=task.verdict_protocol.id,
        )
        return replace(task, known=known)

    def _judge(self, batch: Sequence[_Task]) -> None:
        if batch[0].known is not None:
            self._repeat(batch[0], batch[0].known)
            return
        protocol, timing = batch[0].protocol, batch[0].timing
        began = time.monotonic()
        if not self._bench.is_open_for(protocol):
            self._bench.open_for(protocol)
            if protocol != self._rules.protocol:  # and the others' judges must start again after it
                opening_s = 2 * (time.monotonic() - began)
                self._charge(batch[0].waiting.client, opening_s)
            began = time.monotonic()
        kept_s = 0.0
        by_id = {task.candidate.id: task for task in batch}
        work = [(task.problem, task.candidate) for task in batch]
        record_of = self._record_of(protocol) if timing else _no_record
        for said in self._bench.judge(work, timing=timing, record_of=record_of):
            began, spent_s = time.monotonic(), time.monotonic() - began
            if isinstance(said, Refusal):
                task = by_id[said.candidate_id]
                self._answer(
                    task.waiting, said.reason.removeprefix(f"{task.problem.key}: "), spent_s
                )
            else:
                task = by_id[said.verdict.candidate_id]
                self._keep(task, said, spent_s)
            # what it takes to keep a verdict is paid by its client, not by the next verdict's
            before_s, kept_s = kept_s, time.monotonic() - began
            self._charge(task.waiting.client, spent_s - before_s + kept_s - self._usual_s)
            self._usual_s += USUAL_WEIGHT * (spent_s - self._usual_s)

    def _repeat(self, task: _Task, known: Verdict) -> None:
        """Answer with a known verdict, when making it would have taken as long."""
        spent_s = self._store.spent_s(known.candidate_id, known.protocol_id)
        spent_s = 0.0 if self._one_team else known.judge_s if spent_s is None else spent_s
        self._pause(spent_s)
        if self._is_stopping:
            return
        self._answer(task.waiting, self._vetted(task, known), spent_s)
        self._charge(task.waiting.client, spent_s * self._bench.num_devices - self._usual_s)

    def _keep(self, task: _Task, judgement: Judgement, spent_s: float) -> None:
        """Store a verdict in the ledger, then answer."""
        verdict = judgement.verdict
        if task.problem.id not in self._noted:
            admission = Admission(problem_id=task.problem.id, admitted=True)
            self._ledger.add_problem(task.problem, admission)
        for protocol in (task.protocol, task.verdict_protocol):
            if protocol.id not in self._noted:
                self._ledger.add_protocol(protocol)
        self._noted |= {task.problem.id, task.protocol.id, task.verdict_protocol.id}
        # before the verdict: a kill between the two must not make its repetition quicker
        self._store.note_spent(verdict.candidate_id, verdict.protocol_id, spent_s)
        self._ledger.add_judged(task.candidate, verdict, judgement.samples)
        self._answer(task.waiting, self._vetted(task, verdict), spent_s)

    def _vetted(self, task: _Task, verdict: Verdict) -> Verdict:
        """Return the verdict less what a person vetoes, as of the time of this answer."""
        said = self._vetting.apply_vetoes(task.problem, task.candidate, verdict, timing=task.timing)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return said.model_copy(update={"judged_at": at})

    def _answer(self, waiting: Waiting, said: Verdict | str, spent_s: float) -> None:
        self._store.finish(waiting, said)
        self._settled(waiting, said, spent_s)

    def _charge(self, client: str, seconds: float) -> None:
        self._shares.charge(client, seconds, self._share_of(client))

    def _record_of(self, protocol: EvalProtocol) -> RecordOf:
        def record_of(problem: Problem, candidate: Candidate) -> float | None:
            found = self._ledger.query(
                "record",
                problem_id=problem.id,
                device_kind=self._bench.device_kind,
                protocol_id=protocol.id,
                candidate_id=candidate.id,
            )
            return found.item(0, "certified")

        return record_of


def _no_record(_: Problem, __: Candidate) -> None:
    return None
