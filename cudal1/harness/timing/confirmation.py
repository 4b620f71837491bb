"""Confirm a claim by another measurement, in a fresh process of the candidate's.

Threat: luck, and what one process may have prepared. `claims` says what becomes of the two
measurements.
"""

from __future__ import annotations

from functools import partial

from cudal1.candidate import Candidate
from cudal1.harness.checks.examination import Examination
from cudal1.harness.device.device import Device
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.problem_workers import ProblemWorkers
from cudal1.harness.timing import claims
from cudal1.harness.timing.floor import Floor
from cudal1.harness.timing.sessions import Sessions
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass
from cudal1.protocol import EvalProtocol

SLOWER = 1.1
"""Ratio to the fastest of the reference's processes; a slower process is not asked to confirm a
claim."""


class Confirmation:
    """The confirmation of claims of one problem's candidates.

    Args:
        workers: the problem's processes.
        sessions: the sessions that measure.
        floor: the least time of a call.
        protocol: the settings of the judgement.
        device: the device on which a claim is confirmed.
    """

    def __init__(
        self,
        workers: ProblemWorkers,
        sessions: Sessions,
        floor: Floor,
        protocol: EvalProtocol,
        device: Device,
    ) -> None:
        self._workers = workers
        self._sessions = sessions
        self._floor = floor
        self._protocol = protocol
        self._device = device
        self._is_cpu = device.device_class is not DeviceClass.CUDA
        """True unless the device is a GPU: each measurement then has a reference's process of its
        own (`judge`)."""

    def repeat(
        self, candidate: Candidate, claim: Measurement, examination: Examination
    ) -> Measurement:
        """Measure a claim again; once more where the reference's process is slow.

        `examination` knows of the candidate what the claim tells. As a rule the claim is another
        device's.

        Raises:
            Failure: this time the candidate failed.
        """
        is_far = not self._is_cpu and claims.is_far(claim, self._protocol)
        expected = claim.speedup if is_far else None
        is_fresh = self._is_cpu
        again = self._again(candidate, examination, session=0, is_fresh=is_fresh, expected=expected)
        if again.reference_us > SLOWER * self._sessions.fastest_us:
            again = self._again(candidate, examination, session=1, is_fresh=True, expected=expected)
        return self._floor.doubted(again)

    def confirm(
        self, candidate: Candidate, claim: Measurement, examination: Examination
    ) -> Measurement:
        """Measure a claim again, in a fresh process; up to twice where luck may take it away.

        A small gain may be the luck of the reference's process, too. A large gain may show that the
        reference's process became slow.

        Raises:
            Failure: this time the candidate failed.
        """
        is_small = claims.is_small(claim, self._protocol)
        is_slow = claim.reference_us > SLOWER * self._sessions.fastest_us
        is_fresh = self._is_cpu or is_small or is_slow
        is_far = not self._is_cpu and claims.is_far(claim, self._protocol)
        expected = claim.speedup if is_far else None
        again = self._again(candidate, examination, session=1, is_fresh=is_fresh, expected=expected)
        if claims.is_worth_another(claim, again, self._protocol):
            again = self._again(candidate, examination, session=2, is_fresh=is_fresh, expected=None)
        return claims.settled(
            self._floor.doubted(claim),
            self._floor.doubted(again),
            self._protocol,
            confirmed_on=self._device.id,
        )

    def _again(
        self,
        candidate: Candidate,
        first: Examination,
        *,
        session: int,
        is_fresh: bool,
        expected: float | None,
    ) -> Measurement:
        examination = first.another()  # its bursts are as long as they were
        measured = partial(
            self._measured,
            candidate,
            examination,
            session=session,
            is_fresh=is_fresh,
            expected=expected,
        )
        progress = examination.progress
        compared = progress.compared.copy()
        try:
            return measured()
        except Failure as failure:
            if not examination.may_lack_weights(failure):
                raise
        progress.saw(draws_weights=False)
        progress.compared = compared
        progress.samples[:] = [each for each in progress.samples if each.session != session]
        return measured()

    def _measured(
        self,
        candidate: Candidate,
        examination: Examination,
        *,
        session: int,
        is_fresh: bool,
        expected: float | None,
    ) -> Measurement:
        with self._workers.candidate(candidate) as worker:
            self._workers.have_reference(fresh=is_fresh, seed=worker.job.seed)
            examination.await_build(worker)
            return self._sessions.measure(
                worker, examination, session=session, is_fresh=is_fresh, expected=expected
            )
