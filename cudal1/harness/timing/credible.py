"""Limit how far a claim is believed, by what a candidate may save other than by being faster.

On a CPU calls are a chain, and work outside of the interval is counted. Two savings are left. A
leaner loop may leave out our own Python. Outputs may have been prepared before, until they are used
up. On each device a candidate may do the work of many calls in one, and no median sees that burst.

On a GPU a candidate that works on several inputs at once is fast where all are published together,
and slow in a chain. So what a call saves must be saved in a chain, too. The launch of a first
kernel is excepted, because nothing hides it in a chain. Calls that are hardly longer than a launch
are believed only as far as chains themselves tell. What preparations save once a burst is no
speedup. Where outputs are copied before the next call, a candidate may write them to where the
copies go. It then saves the copies that the reference pays for; chains have no copies.

The module is long because all that may lower a claim is to be seen in one place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from cudal1.harness.checks.examination import Examination
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.costs import Costs
from cudal1.harness.exchange.interval import Order
from cudal1.harness.exchange.outside import WARM, WORK_SLACK_NS
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.timing.quads import FLOOR_US, ROLES, Quads
from cudal1.measurement import Doubt, Role
from cudal1.problem import DeviceClass

GAP_US, OUTPUT_US = 10.0, 1.5
"""Most µs of our own Python that a candidate on a CPU might save. The first is for time outside of
the interval. The second is for each output beyond the first that the candidate makes no tensor
of."""
LEAST_LOOP_US, MOST_LOOP_US = 3.0, 10.0
"""Bounds on the µs of our loop around a call. What empty calls take beyond them is no Python: it is
waking, or the fake device."""
UNEVEN = 0.05
"""Share of a call's time by which the mean of a candidate's calls may exceed their median, beyond
what the reference's mean does."""
UNEVEN_LOOKS = (2, 4)
"""Bursts of each further look, as a multiple of the timed bursts. A machine that pauses for
milliseconds spoils one honest look in six, and a further look as short as the first. Longer looks
average pauses out. They are also harder to get through for a candidate that does the work of many
bursts in one."""
HOARD_BYTES, LEAST_AFTER_HOARD, UNLUCKY = 1 << 16, 9, 9
"""Bytes from which on an output is worth preparing. Least number of pairs of bursts that show what
a call saves when no prepared output is left. Number of pairs of which one may show less than is
believed."""
NUM_LOOKS = 2
"""Number of looks: a machine that is busy for a while spoils one look, but not every one."""
PATIENCE_S = 30.0
"""Seconds for finding out what a candidate has prepared. A candidate that might hold so much that
it takes longer is not believed."""
CHAIN_CALLS, NUM_CHAINS, MORE_LOOKS = 4, 3, 2
"""Number of calls in a chain on a GPU, of chains in a look, and of further looks."""
LAUNCH_US = 30.0
"""Microseconds of host time before a call's first kernel runs; Triton's launcher takes some 20
µs."""
ONCE_PAIRS, ENOUGH_PAIRS = 9, 3
ONCE_US = 60.0
"""Microseconds to which it is known what a burst on a GPU costs beyond its calls. A candidate that
saves no more in `ENOUGH_PAIRS` pairs of bursts is not looked at any longer."""


@dataclass(frozen=True)
class Limit:
    """The largest speedup that is to be believed, and what says so."""

    speedup: float
    doubt: Doubt


class Credible:
    """The largest speedup that is to be believed of one measurement.

    Args:
        quads: the measurement.
        examination: the candidate's examination.
        runner: runs bursts.
        candidate: the candidate's worker.
        reference: the reference's worker.
        costs: the costs of bursts.
    """

    def __init__(
        self,
        quads: Quads,
        examination: Examination,
        runner: BurstRunner,
        candidate: Worker,
        reference: Worker,
        costs: Costs,
    ) -> None:
        self._costs = costs
        self._quads = quads
        self._examination = examination
        self._runner = runner
        self._candidate = candidate
        self._reference = reference
        self._plain_us = quads.net_us(Role.REFERENCE)
        self._claimed_us = quads.net_us(Role.CANDIDATE)

    def limit(self) -> Limit:
        """Return the largest speedup to believe, after running bursts to find it out."""
        if self._runner.timed_order is Order.CHAIN:
            return self._limit_of_chains()
        return self._limit_of_bursts()

    def _without(self, doubtful_us: dict[Doubt, float]) -> Limit:
        """Return what is left of the claim, and the doubt that lowers it most.

        Without any doubt the limit is what most bursts take: the ratio of the medians.
        """
        most = max(doubtful_us, key=lambda doubt: doubtful_us[doubt])
        if doubtful_us[most] <= 0:
            return Limit(self._plain_us / self._claimed_us, Doubt.MEDIAN)
        rest_us = self._claimed_us + sum(doubtful_us.values())
        return Limit(self._plain_us / rest_us, most)

    def _uneven_us(self) -> float:
        """Return the time of a call that a few bursts take beyond what most bursts take, in µs.

        Where there is any, further looks take more bursts. The first even look ends the search with
        0; otherwise the last look, which is the longest, decides.
        """
        allowed_us = UNEVEN * self._claimed_us
        burst_times = self._quads.burst_times
        since, num_first = 0, len(burst_times)
        uneven_us = burst_times.uneven_us(since)
        for times in UNEVEN_LOOKS:
            if uneven_us <= allowed_us:
                return 0.0
            since = len(burst_times)
            self._bursts(self._examination.order, self._quads.num_calls, times * num_first)
            uneven_us = burst_times.uneven_us(since)
        return max(0.0, uneven_us - allowed_us)

    # --- on a CPU --------------------------------------------------------------------------------

    def _limit_of_chains(self) -> Limit:
        trimmed_us = self._trimmed_us()
        doubtful_us = {Doubt.OVERHEAD: trimmed_us}
        if self._claimed_us + trimmed_us < self._plain_us:  # else it earns nothing anyway
            doubtful_us[Doubt.UNEVEN] = self._uneven_us()
            doubtful_us[Doubt.PREPARED] = self._prepared_us()
        by_work = Limit(self._by_work(trimmed_us), Doubt.WORK)
        return _lower(self._without(doubtful_us), by_work)

    def _trimmed_us(self) -> float:
        """Return the time of a call and the gap after it that may be our own and left out, in µs.

        The time of our loop was subtracted, whether a worker ran the loop or not. A burst of as
        many empty calls as there are slots tells it, because a burst begins with what no worker can
        leave out.
        """
        most = self._runner.layout.num_slots
        measured_us = self._quads.time_empty(most) / most
        loop_us = min(MOST_LOOP_US, max(LEAST_LOOP_US, measured_us))
        usual_us = self._runner.usual_us(Order.CHAIN, self._quads.num_calls)
        tensors_us = OUTPUT_US * (len(self._runner.layout.outputs) - 1)
        gap_us = GAP_US if usual_us is None else min(GAP_US, usual_us)
        return loop_us + tensors_us + WORK_SLACK_NS / 1000 + gap_us

    def _by_work(self, trimmed_us: float) -> float:
        """Return the speedup by what the kernel says that both workers computed.

        A candidate that works outside of the interval is charged for computing there, which is
        quicker. A reference that other processes keep waiting on a busy machine takes longer than
        it computes. The fake device computes nothing: it sleeps.
        """
        if self._candidate.job.device == DeviceClass.FAKE.value:
            return math.inf
        count = self._quads.num_calls
        own_us = self._quads.time_empty(count) / count
        own_us += self._runner.usual_us(Order.CHAIN, count) or 0.0
        burst_times = self._quads.burst_times
        plain_us, mine_us = (max(FLOOR_US, burst_times.worked_us(r, count) - own_us) for r in ROLES)
        return plain_us / (mine_us + (WARM - 1) * burst_times.outside_us(count) + trimmed_us)

    def _prepared_us(self) -> float:
        """Return what a call stops saving, in µs, once no prepared output can be left.

        The memory that the candidate has beyond the reference's may hold outputs. As many calls as
        it can hold outputs come first. More calls than that are then looked at, so that what is
        prepared anew in the meantime is paid for among them.
        """
        size, count = self._runner.layout.output_bytes, self._quads.num_calls
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
            # in the mean of all looks: clearing in one look for the next is paid for
            believed = min(in_most, _saved_in_mean(pairs))
            lost_us = min(lost_us, max(0.0, saving_us - believed * self._plain_us))
            if not lost_us:
                break
        return lost_us

    def _net_pairs(self, num_pairs: int) -> list[tuple[float, float]]:
        """Return net times of a call in new bursts, in µs: the reference's with the candidate's."""
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
        believed = self._without(
            {
                Doubt.UNEVEN: self._uneven_us(),
                Doubt.ONCE: self._saved_once(),
                Doubt.TOGETHER: _unsaved_us(saving_us, saved_us, copying_us),
            }
        )
        return _lower(believed, Limit(self._quads.last_speedup(), Doubt.LONGER))

    def _copying_us(self) -> float:
        """Return what a call may have saved by not copying its outputs, in µs."""
        if self._examination.order is not Order.COPY:
            return 0.0
        return self._costs.copying_us(self._reference, self._quads.num_calls)

    def _saved_in_chains(self) -> float:
        """Return what each call of the candidate saves in bursts of the order `CHAIN`, in µs."""
        count = min(CHAIN_CALLS, self._runner.layout.num_slots)
        burst_us = self._bursts(Order.CHAIN, count, NUM_CHAINS)
        return (median(burst_us[Role.REFERENCE]) - median(burst_us[Role.CANDIDATE])) / count

    def _saved_once(self) -> float:
        """Return the part of each call, in µs, of what a burst saves once beyond `ONCE_US`.

        Bursts of half the calls tell what is spent once. They are compared with timed bursts first.
        If that looks bad, bursts of both lengths come in turn, for a GPU's clock drifts.
        """
        count, order = self._quads.num_calls, self._examination.order
        half = count // 2
        if not half:
            return 0.0
        short_us = self._bursts(order, half, ENOUGH_PAIRS)
        saved_us = self._less_than_usual(
            {
                role: [_at_zero(half, median(short_us[role]), count, self._quads.burst_us(role))]
                for role in ROLES
            }
        )
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
        """Return the per-burst overhead that the candidate saves, in µs.

        The overhead is held against the smaller of the empty burst's and the reference's. A burst
        without calls has no memory that is slower in long bursts, as the reference's has. The
        reference's own bursts may be long, and then tell little.
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
    """Return the part of a call's saving that chains do not bear out, in µs.

    The launch of a first kernel explains up to `LAUNCH_US` of it, unless copies explain it.
    """
    missing_us = max(0.0, saving_us - saved_us)
    return max(missing_us - LAUNCH_US, min(missing_us, copying_us))


def _saved_in_most(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the share of a call that the candidate saves in all but a few pairs.

    The result is a share, for the machine may have become quicker.
    """
    shares = sorted(1 - now_us / plain_us for plain_us, now_us in pairs)
    return shares[len(shares) // UNLUCKY]


def _saved_in_mean(pairs: Sequence[tuple[float, float]]) -> float:
    plain_us, now_us = zip(*pairs, strict=True)
    return 1 - fmean(now_us) / fmean(plain_us)


def _at_zero(few: int, few_us: float, many: int, many_us: float) -> float:
    """Return the time of a burst without calls, on the line through two other bursts."""
    return (many * few_us - few * many_us) / (many - few)
