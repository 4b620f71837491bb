"""One measurement of a candidate's process against the reference's, and how far it is believed.

Threat: another judge's candidate may be at work on the device, and what a candidate saves may be
other than by being faster (`credible`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from cudal1.baseline import Baseline
from cudal1.errors import CrowdedError
from cudal1.harness import claims, rule, statistics
from cudal1.harness.burst import Desk
from cudal1.harness.costs import Costs
from cudal1.harness.credible import Credible
from cudal1.harness.crew import Crew
from cudal1.harness.examination import Examination
from cudal1.harness.floor import Floor
from cudal1.harness.oracle import Oracle
from cudal1.harness.progress import NotKept, Phase
from cudal1.harness.quads import Quads
from cudal1.harness.sandbox import Worker
from cudal1.harness.turns import Turns
from cudal1.harness.zygote import Zygote
from cudal1.measurement import Measurement, Role, TimingSample
from cudal1.protocol import EvalProtocol

CALM_LIMIT_S = 5.0
"""A call of another candidate that was begun on a device takes no longer, as a rule; a problem that
waits in vain is judged once more, alone."""


class Sessions:
    """Measures candidates of one problem.

    Args:
        oracle: of the problem.
        desk: where bursts are run.
        crew: has the reference's processes.
        costs: of bursts.
        floor: under a call.
        protocol: how.
        zygote: has processes end.
        turns: in which judges of the device time on it.
        num_lanes: of them.
    """

    def __init__(
        self,
        oracle: Oracle,
        desk: Desk,
        crew: Crew,
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
        self._desk = desk
        self._crew = crew
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
        """Measure against the reference; `is_fresh`: in as fresh a process.

        Where the first bursts bear out the speedup that is `expected`, they suffice, and what they
        say counts. A candidate that overwrites earlier outputs here, though it did not in the
        checks, is measured anew, with copies.
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
        quads = Quads(
            examination,
            self._desk,
            self._oracle,
            self._protocol,
            session=session,
            time_empty=self._costs.empty_us,
            is_copy=bool(examination.progress.seen.copies_reference),
        )
        self._zygote.settle()  # workers dismissed before still held the device
        with (
            examination.progress.stopwatch.during(Phase.MEASURING),
            self._reference(worker, fresh=is_fresh) as reference,
            self._alone(),
            self._crew.still(),
        ):
            self._costs.orient(reference, is_calm=True)
            quads.warm_up(worker, reference)
            ratios = quads.measure(worker, reference, expected=expected)
            samples = [s for s in examination.progress.samples if s.session == session]
            measured = self._measurement(ratios, samples)
            self.fastest_us = min(self.fastest_us, measured.reference_us)
            if rule.bears_out(ratios, expected, self._protocol):
                certified = statistics.conservative(measured.speedup)
                return measured.model_copy(update={"certified": certified})
            if examination.progress.seen.copies_reference:
                return measured.model_copy(update={"certified": 1.0})
            if measured.certified <= 1.0:
                return measured
            limit = Credible(quads, examination, self._desk, worker, reference, self._costs).limit()
        return claims.lowered(measured, limit.speedup, limit.doubt, self._protocol)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have the device alone, once what others began on it is over.

        Threat: another judge's candidate may have begun what never ends, and must not seem to be
        this one's.

        Raises:
            CrowdedError: it is not over in time.
        """
        self._crew.empty()  # it must not be made while all others wait
        with self._turns.timing():
            if self._num_lanes > 1 and not self._desk.await_calm(CALM_LIMIT_S):
                raise CrowdedError(f"{self._oracle.problem.key}: the device is at work for others")
            yield

    def _reference(self, worker: Worker, *, fresh: bool) -> AbstractContextManager[Worker]:
        return self._crew.reference(fresh=fresh, seed=worker.job.seed)

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
