"""Compute the floor under one problem's calls on one device, in time.

Threat: a claim below the floor shows a hole in the clock. Ceilings that were measured while the
device was busy make the floor too high, and would turn an honest candidate away. So ceilings are
measured once more before a candidate is refused.
"""

from __future__ import annotations

from cudal1.harness.device.ceilings import Ceilings
from cudal1.harness.device.turns import Turns
from cudal1.harness.oracle.roofline import BELOW_FLOOR, Work
from cudal1.harness.timing import claims
from cudal1.measurement import Measurement
from cudal1.protocol import EvalProtocol


class Floor:
    """The least time of a call.

    Args:
        work: work that a call provably cannot do without.
        ceilings: the device's ceilings.
        protocol: says in which precision a call may compute.
        turns: turns of the device's judges; the device is measured alone.
    """

    def __init__(
        self, work: Work, ceilings: Ceilings, protocol: EvalProtocol, turns: Turns
    ) -> None:
        self._work = work
        self._ceilings = ceilings
        self._protocol = protocol
        self._turns = turns

    def us(self) -> float | None:
        """Return microseconds of a call; None where nothing is certain."""
        floor_us = self._work.floor_us(self._ceilings.peaks(), self._protocol.precision)
        return floor_us if floor_us > 0 else None

    def under(self, reference_us: float) -> float | None:
        """Return the floor, unless the reference, a program that we trust, has disproved it."""
        floor_us = self.us()
        if floor_us is not None and reference_us < BELOW_FLOOR * floor_us:
            return None
        return floor_us

    def doubted(self, claim: Measurement) -> Measurement:
        """Return the claim; below the floor, with a floor of ceilings measured once more."""
        if not claims.is_impossible(claim):
            return claim
        with self._turns.timing():
            self._ceilings.again()
        return claim.model_copy(update={"floor_us": self.us()})
