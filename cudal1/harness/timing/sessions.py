"""Measure a candidate's process against the reference's, and limit how far the result is believed.

Threat: another judge's candidate may be at work on the device. And a candidate may save time other
than by being faster (`credible`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from statistics import median

from cudal1.baseline import Baseline
from cudal1.errors import DisturbedError
from cudal1.harness.checks.examination import Examination
from cudal1.harness.checks.progress import Phase
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.costs import Costs
from cudal1.harness.exchange.failure import NotKept
from cudal1.harness.exchange.problem_workers import ProblemWorkers
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.timing import claims, rule, statistics
from cudal1.harness.timing.credible import Credible
from cudal1.harness.timing.floor import Floor
from cudal1.harness.timing.quads import Quads
from cudal1.measurement import Doubt, Measurement, Role, TimingSample
from cudal1.protocol import EvalProtocol

CALM_LIMIT_S = 5.0
"""Seconds within which a call of another candidate that was begun on the device ends, as a rule. A
problem that waits in vain is judged once more, alone."""


class Sessions:
    """The measurements of one problem's candidates.

    Args:
        oracle: the problem's oracle.
        runner: runs bursts.
        workers: has the reference's processes.
        costs: the costs of bursts.
        floor: the least time of a call.
        protocol: the settings of the judgement.
        zygote: ends processes.
        turns: the turns in which judges of the device time on it.
        num_lanes: the number of judges with such a share of the device; 1: it has no other.
    """

    def __init__(
        self,
        oracle: Oracle,
        runner: BurstRunner,
        workers: ProblemWorkers,
        costs: Costs,
        floor: Floor,
        protocol: EvalProtocol,
        *,
        zygote: Zygote,
        turns: Turns,
        num_lanes: int,
    ) -> None:
        self.fastest_us = math.inf
        """Microseconds of a call of the fastest of the reference's processes."""
        self._oracle = oracle
        self._runner = runner
        self._workers = workers
        self._costs = costs
        self._floor = floor
        self._protocol = protocol
        self._zygote = zygote
        self._turns = turns
        self._num_lanes = num_lanes

    def measure(
        self,
        worker: Worker,
        examination: Examination,
        *,
        session: int,
        is_fresh: bool,
        expected: float | None = None,
    ) -> Measurement:
        """Measure against the reference; with `is_fresh`, in as fresh a process.

        Where the first bursts bear out the speedup that is `expected`, they suffice, and what they
        say counts. A candidate may overwrite earlier outputs here, though it did not in the checks.
        It is then measured anew, with copies.
        """
        samples = examination.progress.samples
        try:
            return self._measured(
                worker, examination, session=session, is_fresh=is_fresh, expected=expected
            )
        except NotKept as failure:
            examination.settle(worker, failure, exact=False)
            samples[:] = [sample for sample in samples if sample.session != session]
            return self._measured(
                worker, examination, session=session, is_fresh=is_fresh, expected=expected
            )

    def _measured(
        self,
        worker: Worker,
        examination: Examination,
        *,
        session: int,
        is_fresh: bool,
        expected: float | None,
    ) -> Measurement:
        self._zygote.settle()  # dismissed workers may still hold the device
        is_copy = bool(examination.progress.seen.copies_reference)
        is_weak = self._oracle.traits.weakness is not None
        earns_nothing = is_copy or is_weak
        with (
            examination.progress.stopwatch.during(Phase.MEASURING),
            self._reference(worker, fresh=is_fresh) as reference,
            ExitStack() as alone,
        ):
            quads = Quads(
                examination,
                self._runner,
                self._oracle,
                self._protocol,
                session=session,
                time_empty=partial(self._costs.empty_us, reference=reference),
                earns_nothing=earns_nothing,
            )
            if self._num_lanes > 1:  # others may go on while fresh processes load and compile
                quads.warm_up(worker, reference)
            alone.enter_context(self._alone())
            alone.enter_context(self._workers.still())
            self._costs.orient(reference, is_calm=True)
            if self._num_lanes > 1:
                quads.warm_up_again(worker, reference)
            else:
                quads.warm_up(worker, reference)
            if earns_nothing:
                expected = None
            ratios = quads.measure(worker, reference, expected=expected)
            samples = [s for s in examination.progress.samples if s.session == session]
            measured = self._measurement(ratios, samples)
            self.fastest_us = min(self.fastest_us, measured.reference_us)
            if rule.bears_out(ratios, expected, self._protocol):
                certified = statistics.conservative(measured.speedup)
                return measured.model_copy(update={"certified": certified})
            if earns_nothing:
                doubt = Doubt.REFERENCE if is_weak else None
                return measured.model_copy(update={"certified": 1.0, "doubt": doubt})
            if measured.certified <= 1.0:
                return measured
            limit = Credible(
                quads, examination, self._runner, worker, reference, self._costs
            ).limit()
        return claims.lowered(measured, limit.speedup, limit.doubt, self._protocol)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the device alone, once what other judges began on it is over.

        Threat: another judge's candidate may have begun what never ends, and that must not seem to
        be this candidate's.

        Raises:
            DisturbedError: it is not over in time.
        """
        self._costs.get_ready()  # not while all others wait
        with self._turns.timing():
            if self._num_lanes > 1 and not self._runner.await_calm(CALM_LIMIT_S):
                said = f"{self._oracle.problem.key}: the device is at work for others"
                raise DisturbedError(said)
            yield

    def _reference(self, worker: Worker, *, fresh: bool) -> AbstractContextManager[Worker]:
        return self._workers.reference(fresh=fresh, seed=worker.job.seed)

    def _measurement(self, ratios: list[float], samples: list[TimingSample]) -> Measurement:
        def typical(role: Role) -> float:
            return median(sample.net_us for sample in samples if sample.role is role)

        said = rule.read(ratios, self._protocol)
        reference_us = typical(Role.REFERENCE)
        return Measurement(
            baseline=Baseline.EAGER,
            speedup=said.speedup,
            certified=said.certified,
            alpha=said.alpha,
            lower=said.lower,
            upper=said.upper,
            num_quads=len(ratios),
            bucket_medians=said.buckets,
            bucket_variance=said.bucket_variance,
            is_stable=said.is_stable,
            reference_us=reference_us,
            candidate_us=typical(Role.CANDIDATE),
            floor_us=self._floor.under(reference_us),
        )
