"""One candidate under judgement: its checks and its timing, against one problem's oracle.

Threat: everything a worker says is used only against its candidate. An answer is computed after the
output for its input has been captured. Checked and timed bursts are the same to the worker.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness import guards, rule, statistics
from cudal1.harness.burst import Burst, Desk, Ending, Order, stage, wait_ready
from cudal1.harness.correctness import Comparison, agree, compare
from cudal1.harness.families import OWN
from cudal1.harness.oracle import Draw, Key, Oracle, tells
from cudal1.harness.progress import Failure, Progress
from cudal1.harness.sandbox import Worker
from cudal1.harness.wire import State
from cudal1.measurement import Role, TimingSample
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

if TYPE_CHECKING:
    import torch

WARM_UP_BURSTS = 3
WARM_UP_CALLS = 2
FLOOR_US = 0.05
"""A net time below this is taken as this: the ratio stays finite, and the claim gets confirmed."""
SLOWER_SHARE = 4
"""A burst of the candidate may last so many times the target before calls are taken out."""
NEW_WEIGHTS = 0.25
"""Share of quads before which the weights change, untimed."""
DECOYS = 0.15
"""Share of timed bursts before which an untimed one looks the same, but for one input of another
family: what only those need cannot be dropped once the checks are over."""
NUM_REMEMBERED = 4
CHAIN_BURSTS, CHAIN_CALLS = 5, 4
LAUNCH_US = 30.0
"""Host time before a call's first kernel runs; Triton's launcher takes some 20 µs."""


class Examination:
    """Runs bursts of a candidate's worker and compares what comes out of them."""

    def __init__(
        self, oracle: Oracle, desk: Desk, protocol: EvalProtocol, *, reference_call_us: float,
        cost_us: float, rng: random.Random,
    ) -> None:  # fmt: skip
        self.progress = Progress()
        self._oracle = oracle
        self._desk = desk
        self._protocol = protocol
        self._reference_call_us = reference_call_us
        self._cost_us = cost_us
        self._rng = rng
        self._earlier: deque[list[torch.Tensor]] = deque(maxlen=NUM_REMEMBERED)
        self._deck: list[str] = []
        self._history: list[tuple[Order, int]] = []
        self._has_run = False

    def await_build(self, worker: Worker) -> None:
        """Leave unless the candidate's module was built."""
        ending = wait_ready(worker, self._protocol.start_timeout_s)
        self.progress.layers = worker.layers
        if ending is Ending.TIMED_OUT:
            raise Failure(Status.TIMED_OUT, "did not finish loading in time")
        if ending is not Ending.DONE:
            said = worker.display_text() or "its process died while loading"
            raise Failure(Status.NO_BUILD, said)
        worker.freeze()  # until its first burst: others are timed in between

    # --- correctness -----------------------------------------------------------------------------

    def check(self, worker: Worker) -> None:
        """Correctness, in stages, on inputs of several families and under several weights."""
        progress, slots = self.progress, self._desk.layout.num_slots
        for number, target in enumerate(self._protocol.correctness_stages, start=1):
            if number > 1:
                self.change_weights(worker)
            orders = self._rng.sample(list(Order), len(Order))
            while (missing := target - progress.num_inputs) > 0:
                # each order once in a stage, where the slots allow; a kept burst needs two calls
                count = min(slots, max(min(2, missing), missing // max(1, len(orders))))
                order = orders.pop() if orders else self._rng.choice(list(Order))
                draws = [self._draw_for_check(i) for i in range(count)]
                self.compare(self.run(worker, draws, order), exact=True)
            progress.stage = number
            self._refuse_if_slow()

    def _draw_for_check(self, index: int) -> Draw:
        if self.progress.num_inputs + index == 0:
            return self._oracle.draw(self._rng.getrandbits(62))
        self._deck = self._deck or self._oracle.deck(self._rng)
        return self._oracle.draw(self._rng.getrandbits(62), self._deck.pop())

    def _refuse_if_slow(self) -> None:
        times = self.progress.call_us / self._reference_call_us
        if times > self._protocol.slow_factor:
            raise Failure(Status.TIMED_OUT, f"{times:.0f} times slower than the reference")

    def change_weights(self, *workers: Worker) -> None:
        """Give the workers and the oracle other weights, where the problem has any."""
        if not self._oracle.can_change_weights:
            return
        self._oracle.change_weights(self._rng.getrandbits(62))
        for worker in workers:
            layout = self._desk.layout
            stage(worker.ring.memory, 0, list(self._oracle.weights.values()), layout.weights)
            self._desk.settle()
            worker.announce_weights()

    def compare(self, burst: Burst, *, exact: bool, reference: Burst | None = None) -> None:
        """Compare every output of a burst; answers are computed here, after the capture.

        Where the reference's worker has run on the same inputs, its outputs, which the judge holds,
        are looked at first; what they do not settle is computed here.
        """
        if burst.inputs_changed and not self._oracle.mutates_inputs:
            evidence = "an input in the ring was written to"
            raise Failure(
                Status.INCORRECT, "changed its inputs in place, which the reference does not",
                (guards.flag("changed_input", evidence),),
            )  # fmt: skip
        self.progress.compared = True
        if reference is not None and self._all_agree(burst, reference):
            self.progress.num_inputs += len(burst.draws)
            self._desk.release(burst)
            return
        for slot, draw in enumerate(burst.draws):
            outputs = self._desk.output(burst, slot)
            key = self._oracle.exact_key(draw) if exact else self._oracle.key(draw)
            if not exact and not self._agree(outputs, key):
                key = self._oracle.exact_key(draw)  # such a draw may be hard on the reference, too
            telling = [
                (output, answer, error)
                for output, (answer, error) in zip(outputs, key, strict=True)
                if tells(draw, error)
            ]
            for output, answer, error in telling:
                comparison = compare(output, answer, error)
                self.progress.note(comparison, self._protocol.precision)
                if not comparison.meets(self._protocol.precision):
                    self._fail(burst, slot, comparison)
            self.progress.num_inputs += bool(telling)
            if slot == 0:
                self._earlier.append([answer for answer, _ in key])
        self._desk.release(burst)

    def _all_agree(self, burst: Burst, reference: Burst) -> bool:
        """Whether every output of a burst meets the asked class, at one look for each tensor."""
        import torch

        assert burst.draws == reference.draws
        slots, desk = range(len(burst.draws)), self._desk
        given = [desk.output(burst, slot) for slot in slots]
        answers = [desk.output(reference, slot) for slot in slots]
        self._earlier.append([answer.clone() for answer in answers[0]])
        error = self._oracle.error(OWN)
        return all(
            agree(
                torch.stack([outputs[which] for outputs in given]),
                torch.stack([outputs[which] for outputs in answers]),
                error, self._protocol.precision,
            )
            for which in range(len(given[0]))
        )  # fmt: skip

    def _agree(self, outputs: list[torch.Tensor], key: Key) -> bool:
        pairs = zip(outputs, key, strict=True)
        return all(compare(x, y, e).meets(self._protocol.precision) for x, (y, e) in pairs)

    def _fail(self, burst: Burst, slot: int, comparison: Comparison) -> None:
        asked, met, draw = self._protocol.precision, self.progress.precision, burst.draws[slot]
        self.progress.mismatch = (
            f"input {self.progress.num_inputs} ({draw.family}): "
            f"{comparison.mismatch or 'not comparable'}"
        )
        if met is not None:
            found = guards.flag("lower_precision", f"relative error {comparison.relative_l2:.1e}")
            raise Failure(
                Status.INCORRECT, f"correct only in the looser precision class {met}, not {asked}",
                (found,),
            )  # fmt: skip
        found = guards.explain(
            self._desk, burst, slot,
            answers=[[y for y, _ in self._oracle.key(other)] for other in burst.draws],
            earlier=self._earlier, error=self._oracle.error(draw.family),
        )  # fmt: skip
        if found is None:
            raise Failure(Status.INCORRECT, f"wrong output: {self.progress.mismatch}")
        status = Status.HACKED if found.kind in guards.CHEATS else Status.INCORRECT
        raise Failure(status, f"{found.kind}: {found.evidence}", (found,))

    # --- bursts ----------------------------------------------------------------------------------

    def run(self, worker: Worker, draws: Sequence[Draw], order: Order | None = None) -> Burst:
        """One burst of the candidate, as timed ones are; leaves with its failure."""
        order = order or self._desk.timed_order
        worker.thaw()
        burst = self._desk.run(worker, draws, order=order, timeout_s=self._timeout_s(len(draws)))
        worker.freeze()
        self._history.append((order, len(draws)))
        match burst.ending:
            case Ending.DONE:
                if self._has_run:  # the first burst may compile
                    took_us = max(0.0, burst.elapsed_us - self._cost_us) / len(draws)
                    self.progress.call_us = min(self.progress.call_us, took_us)
                self._has_run = True
                return burst
            case Ending.TIMED_OUT:
                raise Failure(Status.TIMED_OUT, "a call did not return in time")
            case Ending.DIED:
                raise Failure(Status.CRASHED, "its process died in a call")
            case Ending.FAILED:
                said = worker.display_text() or "it gave no reason"
                wrong = worker.state == State.WRONG_OUTPUT
                raise Failure(Status.INCORRECT if wrong else Status.CRASHED, said)

    def _timeout_s(self, num_calls: int) -> float:
        protocol = self._protocol
        allowed_s = num_calls * self._reference_call_us * 1e-6 * protocol.slow_factor
        limit_s = protocol.call_timeout_s + min(allowed_s, 10 * protocol.call_timeout_s)
        return limit_s if self._has_run else limit_s + protocol.start_timeout_s

    def fresh(self, count: int) -> list[Draw]:
        """Inputs of the problem's own kind that nobody has seen."""
        return [self._oracle.draw(self._rng.getrandbits(62)) for _ in range(count)]

    # --- timing ----------------------------------------------------------------------------------

    def num_calls(self) -> int:
        """Calls in a timed burst: as many as the target time holds, fewer for a slow candidate."""
        longest_us = max(self._reference_call_us, self.progress.call_us / SLOWER_SHARE)
        wanted = round(self._protocol.burst_us / longest_us)
        return max(1, min(self._desk.layout.num_slots, wanted))

    def measure(
        self, candidate: Worker, reference: Worker, *, empty_us: float, session: int
    ) -> list[float]:
        """Log-ratios of quads (of pairs, under the paper's rule), until the rule has enough."""
        self._warm_up(candidate, reference)
        ratios: list[float] = []
        started = time.monotonic()
        while not rule.is_done(ratios, time.monotonic() - started, self._protocol):
            if self._rng.random() < NEW_WEIGHTS:
                self.change_weights(candidate, reference)
                self._both(candidate, reference, 1)
            times = self._quad(candidate, reference, empty_us, (session, len(ratios)))
            ratios.append(statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE]))
        return ratios

    def _warm_up(self, candidate: Worker, reference: Worker) -> None:
        """Give the reference's process the history of the candidate's: heaps remember theirs."""
        done, self._history = self._history, []
        for order, count in done:
            self._desk.release(self._run_reference(reference, self.fresh(1) * count, order))
        for _ in range(WARM_UP_BURSTS):
            self._both(candidate, reference, min(WARM_UP_CALLS, self._desk.layout.num_slots))

    def _both(self, candidate: Worker, reference: Worker, count: int) -> None:
        """An untimed burst of each, on the same inputs."""
        draws = self.fresh(count)
        known = self._run_reference(reference, draws)
        self.compare(self.run(candidate, draws), exact=False, reference=known)
        self._desk.release(known)

    def _decoy(self, candidate: Worker, reference: Worker, count: int) -> None:
        """A burst of each that no worker can tell from a timed one before it is too late."""
        draws = self.fresh(count)
        family = self._rng.choice(self._oracle.families[1:] or self._oracle.families)
        draws[self._rng.randrange(count)] = self._oracle.draw(self._rng.getrandbits(62), family)
        self._desk.release(self._run_reference(reference, draws))
        self.compare(self.run(candidate, draws), exact=False)

    def _quad(
        self, candidate: Worker, reference: Worker, empty_us: float, place: tuple[int, int]
    ) -> dict[Role, list[float]]:
        """The rule's bursts in a row, both roles on the same inputs, new to the candidate.

        Outputs are compared when the last one is held.
        """
        count = self.num_calls()
        order = rule.draw_order(self._rng, self._protocol)
        inputs = [self.fresh(count) for _ in range(len(order) // 2)]
        next_inputs = {Role.REFERENCE: iter(inputs), Role.CANDIDATE: iter(inputs)}
        times: dict[Role, list[float]] = {Role.REFERENCE: [], Role.CANDIDATE: []}
        held: dict[Role, list[Burst]] = {Role.REFERENCE: [], Role.CANDIDATE: []}
        for position, role in enumerate(order):
            if self._rng.random() < DECOYS:
                self._decoy(candidate, reference, count)
            draws = next(next_inputs[role])
            if role is Role.REFERENCE:
                burst = self._run_reference(reference, draws)
            else:
                burst = self.run(candidate, draws)
            held[role].append(burst)
            net_us = (burst.elapsed_us - empty_us) / count
            times[role].append(max(FLOOR_US, net_us))
            self.progress.samples.append(
                TimingSample(
                    session=place[0], quad=place[1], position=position, role=role,
                    num_calls=count, burst_us=burst.elapsed_us, net_us=net_us,
                )
            )  # fmt: skip
        for known, burst in zip(held[Role.REFERENCE], held[Role.CANDIDATE], strict=True):
            self.compare(burst, exact=False, reference=known)
            self._desk.release(known)
        return times

    def batching_limit(self, candidate: Worker, reference: Worker, *, session: int) -> float:
        """The largest speedup that chains of calls bear out, where bursts are no chains.

        Whoever works on several inputs at once is fast in a burst and slow in a chain. What a chain
        costs more must be the same for both roles, but for the launch of the first kernel, which
        nothing hides there (`LAUNCH_US`). Calls that are hardly longer than that are believed only
        as far as the chains themselves tell.
        """
        if self._desk.timed_order is Order.CHAIN:
            return math.inf
        count = min(CHAIN_CALLS, self._desk.layout.num_slots)
        chain_us = {Role.REFERENCE: math.inf, Role.CANDIDATE: math.inf}
        for _ in range(CHAIN_BURSTS):
            draws = self.fresh(count)
            known = self._run_reference(reference, draws, Order.CHAIN)
            burst = self.run(candidate, draws, Order.CHAIN)
            for role, each in ((Role.REFERENCE, known), (Role.CANDIDATE, burst)):
                chain_us[role] = min(chain_us[role], each.elapsed_us / count)
            self.compare(burst, exact=False, reference=known)
            self._desk.release(known)
        net_us = {
            role: max(FLOOR_US, median(s.net_us for s in self._samples(session, role)))
            for role in chain_us
        }
        faster_us = chain_us[Role.REFERENCE] - chain_us[Role.CANDIDATE]
        plain_us = net_us[Role.REFERENCE]
        if plain_us < 2 * LAUNCH_US:
            least_us = plain_us - faster_us
            return (plain_us + LAUNCH_US) / max(FLOOR_US, least_us + LAUNCH_US)
        claimed_us = plain_us - net_us[Role.CANDIDATE]
        doubtful_us = max(0.0, claimed_us - faster_us - LAUNCH_US)
        return plain_us / (net_us[Role.CANDIDATE] + doubtful_us)

    def _samples(self, session: int, role: Role) -> list[TimingSample]:
        return [s for s in self.progress.samples if s.session == session and s.role is role]

    def _run_reference(
        self, worker: Worker, draws: Sequence[Draw], order: Order | None = None
    ) -> Burst:
        if not self._desk.is_quiet():
            evidence = "the device was at work while nobody should have used it"
            raise Failure(
                Status.HACKED, "kept the device busy outside its own turn",
                (guards.flag("outside_turn", evidence),),
            )  # fmt: skip
        return run_own(self._desk, worker, draws, self._protocol, order)


def run_own(
    desk: Desk, worker: Worker, draws: Sequence[Draw], protocol: EvalProtocol,
    order: Order | None = None,
) -> Burst:  # fmt: skip
    """One burst of a worker that runs our own code.

    Raises:
        WorkerError: it failed, so that nothing can be judged.
    """
    limit_s = protocol.start_timeout_s + 10 * protocol.call_timeout_s
    worker.thaw()
    burst = desk.run(worker, draws, order=order or desk.timed_order, timeout_s=limit_s)
    worker.freeze()
    if burst.ending is not Ending.DONE:
        raise WorkerError(
            f"the reference's worker {burst.ending.value} in a burst: "
            f"{worker.display_text() or 'no word'}; is the machine out of memory?"
        )
    return burst
