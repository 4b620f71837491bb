"""How far a claim is believed: what a candidate may have saved other than by being faster.

On a CPU calls are a chain, and work outside of the interval is counted. What is left: our own
Python, which a leaner loop may leave out, and outputs that were prepared before, until they are
used up. On each device: work of many calls that is done in one, whose burst no median sees.

On a GPU whoever works on several inputs at once is fast where all are published together, and slow
in a chain. So what a call saves must be saved in a chain, too, but for the launch of a first
kernel, which nothing hides there; calls that are hardly longer than that are believed only as far
as chains themselves tell. What is saved once a burst, by whatever was prepared, is no speedup.
Where outputs are copied before the next call, a candidate may write them to where the copies go,
and save the copies that the reference pays for: chains have none.

Long because all that may lower a claim is to be seen in one place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from cudal1.harness.burst import Desk
from cudal1.harness.costs import Costs
from cudal1.harness.examination import Examination
from cudal1.harness.interval import Order
from cudal1.harness.outside import WARM, WORK_SLACK_NS
from cudal1.harness.quads import FLOOR_US, ROLES, Quads
from cudal1.harness.sandbox import Worker
from cudal1.measurement import Doubt, Role
from cudal1.problem import DeviceClass

GAP_US, OUTPUT_US = 10.0, 1.5
"""What of our own Python a candidate on a CPU might save outside of the interval, at most, and by
making no tensor of an output beyond the first."""
LEAST_LOOP_US, MOST_LOOP_US = 3.0, 10.0
"""Around a call. What calls of nothing take beyond it is no Python: waking, or the fake device."""
UNEVEN = 0.05
"""The mean of a candidate's calls may exceed their median by so much more than the reference's."""
UNEVEN_LOOKS = (2, 4)
"""So many times as many bursts as were timed. A machine that pauses for milliseconds now and then
spoils one honest look in six, and a look that is as short again: longer ones average it out, and
are harder to get through for who does the work of many bursts in one."""
HOARD_BYTES, LEAST_AFTER_HOARD, UNLUCKY = 1 << 16, 9, 9
"""Outputs from this size on are worth preparing. How many pairs of bursts show what a call saves
when none is left, at least, and that one in so many of them may show less than is believed."""
NUM_LOOKS = 2
"""A machine that is busy for a while spoils one look, but not every one."""
PATIENCE_S = 30.0
"""Who might hold so much that it takes longer to find out is not believed."""
CHAIN_CALLS, NUM_CHAINS, MORE_LOOKS = 4, 3, 2
"""Of the other order, on a GPU."""
LAUNCH_US = 30.0
"""Host time before a call's first kernel runs; Triton's launcher takes some 20 µs."""
ONCE_PAIRS, ENOUGH_PAIRS = 9, 3
ONCE_US = 60.0
"""How well it is known what a burst on a GPU costs beyond its calls; who saves no more in a few
pairs of bursts is not looked at any longer."""


@dataclass(frozen=True)
class Limit:
    """The largest speedup that is to be believed, and what says so."""

    speedup: float
    doubt: Doubt


class Credible:
    """The largest speedup that is to be believed of one measurement.

    Args:
        quads: the measurement.
        examination: of the candidate.
        desk: where bursts are run.
        candidate: its worker.
        reference: the other.
        costs: of bursts.
    """

    def __init__(
        self, quads: Quads, examination: Examination, desk: Desk, candidate: Worker,
        reference: Worker, costs: Costs,
    ) -> None:  # fmt: skip
        self._costs = costs
        self._quads = quads
        self._examination = examination
        self._desk = desk
        self._candidate = candidate
        self._reference = reference
        self._plain_us = quads.net_us(Role.REFERENCE)
        self._claimed_us = quads.net_us(Role.CANDIDATE)

    def limit(self) -> Limit:
        """The largest speedup; runs bursts to find out."""
        if self._desk.timed_order is Order.CHAIN:
            return self._limit_of_chains()
        return self._limit_of_bursts()

    def _without(self, doubtful_us: dict[Doubt, float]) -> Limit:
        """What is left of the claim, and what lowers it most.

        Without any doubt that is what most bursts take.
        """
        most = max(doubtful_us, key=lambda doubt: doubtful_us[doubt])
        if doubtful_us[most] <= 0:
            return Limit(self._plain_us / self._claimed_us, Doubt.MEDIAN)
        rest_us = self._claimed_us + sum(doubtful_us.values())
        return Limit(self._plain_us / rest_us, most)

    def _uneven_us(self) -> float:
        """What calls take in a few bursts beyond what they take in most.

        Where there is any, more bursts come, and the most there were decide.
        """
        allowed_us = UNEVEN * self._claimed_us
        spent = self._quads.spent
        since, num_first = 0, len(spent)
        uneven_us = spent.uneven_us(since)
        for times in UNEVEN_LOOKS:
            if uneven_us <= allowed_us:
                return 0.0
            since = len(spent)
            self._bursts(self._examination.order, self._quads.num_calls, times * num_first)
            uneven_us = spent.uneven_us(since)
        return max(0.0, uneven_us - allowed_us)

    # --- on a CPU --------------------------------------------------------------------------------

    def _limit_of_chains(self) -> Limit:
        trimmed_us = self._trimmed_us()
        doubtful_us = {Doubt.OVERHEAD: trimmed_us}
        if self._claimed_us + trimmed_us < self._plain_us:  # else nothing is earned anyway
            doubtful_us[Doubt.UNEVEN] = self._uneven_us()
            doubtful_us[Doubt.PREPARED] = self._prepared_us()
        by_work = Limit(self._by_work(trimmed_us), Doubt.WORK)
        return _lower(self._without(doubtful_us), by_work)

    def _trimmed_us(self) -> float:
        """What of a call's time and of the gap after it may be our own, and left out.

        What our loop takes was subtracted from whoever ran it, or did not: as many calls of nothing
        as there are slots tell, since a burst begins with what nobody can leave out.
        """
        most = self._desk.layout.num_slots
        measured_us = self._quads.time_empty(most) / most
        loop_us = min(MOST_LOOP_US, max(LEAST_LOOP_US, measured_us))
        usual_us = self._desk.usual_us(Order.CHAIN, self._quads.num_calls)
        tensors_us = OUTPUT_US * (len(self._desk.layout.outputs) - 1)
        gap_us = GAP_US if usual_us is None else min(GAP_US, usual_us)
        return loop_us + tensors_us + WORK_SLACK_NS / 1000 + gap_us

    def _by_work(self, trimmed_us: float) -> float:
        """The speedup by what the kernel says that both computed.

        A candidate that works outside of the interval is charged for computing there, which is
        quicker; a reference that others keep waiting on a busy machine takes longer than it
        computes. The fake device computes nothing: it sleeps.
        """
        if self._candidate.job.device == DeviceClass.FAKE.value:
            return math.inf
        count = self._quads.num_calls
        own_us = self._quads.time_empty(count) / count
        own_us += self._desk.usual_us(Order.CHAIN, count) or 0.0
        spent = self._quads.spent
        plain_us, mine_us = (max(FLOOR_US, spent.worked_us(r, count) - own_us) for r in ROLES)
        return plain_us / (mine_us + (WARM - 1) * spent.outside_us(count) + trimmed_us)

    def _prepared_us(self) -> float:
        """What a call of the candidate no longer saves once no prepared output can be left.

        That many calls come first as the memory that it has beyond the reference's holds outputs,
        and more than as many are then looked at: what is prepared anew in the meantime is paid for
        among them.
        """
        size, count = self._desk.layout.output_bytes, self._quads.num_calls
        more_bytes = self._candidate.held_bytes - self._reference.held_bytes
        if size < HOARD_BYTES or more_bytes < size:
            return 0.0
        saving_us = max(0.0, self._plain_us - self._claimed_us)
        num_hoarded = -(-more_bytes // (size * count))
        num_after = max(LEAST_AFTER_HOARD, num_hoarded + 1)
        started = time.monotonic()
        self._bursts(Order.CHAIN, count, 1)
        if (time.monotonic() - started) * (num_hoarded + NUM_LOOKS * num_after) > PATIENCE_S:
            return saving_us
        self._bursts(Order.CHAIN, count, num_hoarded)
        pairs: list[tuple[float, float]] = []
        in_most, lost_us = -math.inf, saving_us
        for _ in range(NUM_LOOKS):
            look = self._net_pairs(num_after)
            pairs += look
            in_most = max(in_most, _saved_in_most(look))
            # in the mean of all looks: who clears in one for the next has paid for it
            believed = min(in_most, _saved_in_mean(pairs))
            lost_us = min(lost_us, max(0.0, saving_us - believed * self._plain_us))
            if not lost_us:
                break
        return lost_us

    def _net_pairs(self, num_pairs: int) -> list[tuple[float, float]]:
        """What a call now takes, in bursts of both, of the reference's and of the candidate's."""
        count = self._quads.num_calls
        empty_us = self._quads.time_empty(count)
        burst_us = self._bursts(Order.CHAIN, count, num_pairs)
        plain_us, now_us = (
            [max(FLOOR_US, (each_us - empty_us) / count) for each_us in burst_us[role]]
            for role in ROLES
        )
        return list(zip(plain_us, now_us, strict=True))

    # --- on a GPU --------------------------------------------------------------------------------

    def _limit_of_bursts(self) -> Limit:
        saving_us = self._plain_us - self._claimed_us
        copying_us = self._copying_us()
        saved_us = self._saved_in_chains()
        for _ in range(MORE_LOOKS):
            if _unsaved_us(saving_us, saved_us, copying_us) > 0:  # a busy moment, perhaps
                saved_us = max(saved_us, self._saved_in_chains())
        if self._plain_us < 2 * LAUNCH_US:
            least_us = max(FLOOR_US, self._plain_us - saved_us + LAUNCH_US)
            return Limit((self._plain_us + LAUNCH_US) / least_us, Doubt.TOGETHER)
        believed = self._without({
            Doubt.UNEVEN: self._uneven_us(), Doubt.ONCE: self._saved_once(),
            Doubt.TOGETHER: _unsaved_us(saving_us, saved_us, copying_us),
        })  # fmt: skip
        return _lower(believed, Limit(self._quads.last_speedup(), Doubt.LONGER))

    def _copying_us(self) -> float:
        """Return what a call of the candidate may have saved by not copying its outputs."""
        if self._examination.order is not Order.COPY:
            return 0.0
        return self._costs.copying_us(self._reference, self._quads.num_calls)

    def _saved_in_chains(self) -> float:
        """What each call of the candidate saves in bursts of the other order."""
        count = min(CHAIN_CALLS, self._desk.layout.num_slots)
        burst_us = self._bursts(Order.CHAIN, count, NUM_CHAINS)
        return (median(burst_us[Role.REFERENCE]) - median(burst_us[Role.CANDIDATE])) / count

    def _saved_once(self) -> float:
        """What the candidate saves in a burst however long it is, beyond `ONCE_US`, by the call.

        Bursts of half the calls tell what is spent once: beside timed ones first and, if that looks
        bad, beside others in turn, for a GPU's clock drifts.
        """
        count, order = self._quads.num_calls, self._examination.order
        half = count // 2
        if not half:
            return 0.0
        short_us = self._bursts(order, half, ENOUGH_PAIRS)
        saved_us = self._less_than_usual({
            role: [_at_zero(half, median(short_us[role]), count, self._quads.burst_us(role))]
            for role in ROLES
        })  # fmt: skip
        if saved_us <= ONCE_US:
            return 0.0
        once_us: dict[Role, list[float]] = {role: [] for role in ROLES}
        for number in range(1, ONCE_PAIRS + 1):
            short_us, long_us = (self._bursts(order, each, 1) for each in (half, count))
            for role in ROLES:
                (few_us,), (many_us,) = short_us[role], long_us[role]
                once_us[role].append(_at_zero(half, few_us, count, many_us))
            saved_us = self._less_than_usual(once_us)
            if number >= ENOUGH_PAIRS and saved_us <= ONCE_US:
                return 0.0
        return (saved_us - ONCE_US) / count

    def _less_than_usual(self, once_us: dict[Role, list[float]]) -> float:
        """How much less the candidate spends once a burst than whoever spends less of two others.

        A burst without calls has no memory that is slower in long ones, as the reference's has;
        the reference's own bursts may be long, and then tell little.
        """
        count = self._quads.num_calls
        half = count // 2
        time_empty = self._quads.time_empty
        empty_us = _at_zero(half, time_empty(half), count, time_empty(count))
        usual_us = min(empty_us, median(once_us[Role.REFERENCE]))
        return usual_us - median(once_us[Role.CANDIDATE])

    def _bursts(self, order: Order, count: int, times: int) -> dict[Role, list[float]]:
        return self._quads.bursts(self._candidate, self._reference, order, count, times)


def _lower(one: Limit, other: Limit) -> Limit:
    return min(one, other, key=lambda limit: limit.speedup)


def _unsaved_us(saving_us: float, saved_us: float, copying_us: float) -> float:
    """Return what of a call's saving chains do not bear out.

    The launch of a first kernel explains up to `LAUNCH_US` of it, unless copies explain that.
    """
    missing_us = max(0.0, saving_us - saved_us)
    return max(missing_us - LAUNCH_US, min(missing_us, copying_us))


def _saved_in_most(pairs: Sequence[tuple[float, float]]) -> float:
    """Of a call, in all but a few pairs; a share, for the machine may have become quicker."""
    shares = sorted(1 - now_us / plain_us for plain_us, now_us in pairs)
    return shares[len(shares) // UNLUCKY]


def _saved_in_mean(pairs: Sequence[tuple[float, float]]) -> float:
    plain_us, now_us = zip(*pairs, strict=True)
    return 1 - fmean(now_us) / fmean(plain_us)


def _at_zero(few: int, few_us: float, many: int, many_us: float) -> float:
    """What a burst of no calls would take, on the line through two others."""
    return (many * few_us - few * many_us) / (many - few)
