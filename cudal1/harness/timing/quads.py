"""Time one candidate against the reference: quads of bursts, and chains beside them.

Threat: a worker that knows which burst is timed, or which inputs may come, works for those alone.
So every timed output is compared in full. Untimed bursts that look the same come in between, and
the order is drawn from the judge's generator.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from cudal1.harness.checks.examination import Examination
from cudal1.harness.exchange.burst import Burst, BurstRunner, run_own
from cudal1.harness.exchange.burst_times import BurstTimes, took_us
from cudal1.harness.exchange.interval import Order
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.timing import rule, statistics
from cudal1.measurement import Role, TimingSample
from cudal1.protocol import EvalProtocol, Rule

WARM_UP_BURSTS = 3
WARM_UP_CALLS = 2
FLOOR_US = 0.05
"""Least net time in µs; a shorter time is taken as this. So the ratio stays finite, and the claim
gets confirmed."""
NEW_WEIGHTS = 0.25
"""Share of quads before which the weights change, untimed, under `drop_in`."""
DECOYS = 0.6
"""Chance of a decoy in a quad: somewhere, an untimed burst of each role looks the same, but for
some inputs of other families. What only those inputs need cannot be dropped once the checks are
over."""
REPLANNED, LONGER = 2, 3
"""Factor by which a candidate must turn out faster than it seemed before bursts become longer.
Factor by which bursts become longer where nothing is decided, up to so many target times. A
candidate that is slow at first would otherwise be seen on few inputs."""
OTHERS_IN_DECOY, ENOUGH_DECOYS, ENOUGH_INPUTS = 8, 4, 2
"""Inputs of a decoy for each one of another family. Number of decoys within which enough inputs of
every family come, where a burst has room for so many; else two decoys may come in a quad. Number of
inputs of a family that are enough in the first measurement, beyond which nothing is paid: a single
one may happen to be harmless for a candidate that is wrong on its kind. In a confirmation one is
enough."""
LEAST_BURST = 0.5
"""Least length of a candidate's burst on a GPU, as a share of the reference's target, if the slots
suffice. What a burst costs beyond its calls is known to some 30 µs there. A candidate that hides 60
µs is not found out."""
OTHERS_IN = 16
"""Number of timed calls on a GPU for each one of another family; no family takes longer than
another there."""
ROLES: tuple[Role, ...] = (Role.REFERENCE, Role.CANDIDATE)


class Quads:
    """Bursts of the candidate and of the reference, in turn.

    Args:
        examination: the candidate's examination; it compares what comes out.
        runner: runs bursts.
        oracle: the problem's oracle.
        protocol: the settings of the judgement.
        session: 0 for the first measurement, 1 and 2 for its confirmations.
        time_empty: returns what the harness itself costs in a burst of so many calls, in µs.
        earns_nothing: true if no gain can count: the candidate is the reference, names aside, or
            the reference is weak.
    """

    def __init__(
        self,
        examination: Examination,
        runner: BurstRunner,
        oracle: Oracle,
        protocol: EvalProtocol,
        *,
        session: int,
        time_empty: Callable[[int], float],
        earns_nothing: bool = False,
    ) -> None:
        self.time_empty = time_empty
        self._examination = examination
        self._runner = runner
        self._oracle = oracle
        self._protocol = protocol
        self._session = session
        self._earns_nothing = earns_nothing
        self._rng = examination.rng
        self._samples: list[TimingSample] = examination.progress.samples
        self._missing = Counter(
            dict.fromkeys(oracle.families[1:], ENOUGH_INPUTS if session == 0 else 1)
        )
        """Number of inputs of each family that have yet to come among those of bursts that look
        like timed ones."""
        self._next_decoys: list[list[Draw]] = []
        """Inputs of the next decoys, drawn long before: drawing takes time, which a worker sees."""
        self.burst_times = BurstTimes()
        """Times of all bursts that are of the timed bursts' order."""

    def measure(
        self, candidate: Worker, reference: Worker, *, expected: float | None = None
    ) -> list[float]:
        """Return log-ratios of quads or pairs, until they suffice or bear out `expected`."""
        count = self._num_calls(candidate, reference)
        self.burst_times = BurstTimes()  # the first bursts of a process load and compile
        empty_us = self.time_empty(count)
        ratios: list[float] = []
        started = time.monotonic()
        while not (
            rule.bears_out(ratios, expected, self._protocol)
            or self._is_done(ratios, time.monotonic() - started)
        ):
            wanted = self._replanned(count, ratios)
            if wanted != count:
                count, empty_us, self._next_decoys = wanted, self.time_empty(wanted), []
            if self._changes_weights and self._rng.random() < NEW_WEIGHTS:
                self._examination.change_weights(candidate, reference)
                self.both(candidate, reference, self._examination.fresh(count))
            in_pairs = self._earns_nothing or rule.takes_pairs(
                ratios, self._protocol, are_bursts_alike=self._mixes_families
            )
            order = rule.draw_order(self._rng, self._protocol, in_pairs=in_pairs)
            times = self._quad(candidate, reference, order, count, empty_us, len(ratios))
            ratios.append(statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE]))
        return ratios

    @property
    def _changes_weights(self) -> bool:
        return self._examination.is_drop_in and self._oracle.can_change_weights

    def _is_done(self, ratios: list[float], elapsed_s: float) -> bool:
        """Return whether the rule has enough and, where it gives anything, so have all families.

        Where no gain can count only times are wanted, in a pair for each bucket.
        """
        if self._earns_nothing and self._protocol.rule is Rule.CERTIFIED:
            return len(ratios) >= self._protocol.num_buckets
        if not rule.is_done(ratios, elapsed_s, self._protocol):
            return False
        if self._mixes_families or not self._missing:
            return True
        return rule.read(ratios, self._protocol).certified <= 1.0

    def warm_up(self, candidate: Worker, reference: Worker) -> None:
        """Give both the same weights, and the reference's process the history of the candidate's.

        Heaps remember their history. On a GPU the calls' memory is of an arena, which does not.
        """
        if self._changes_weights:
            self._examination.change_weights(candidate, reference)
        else:  # the candidate has them already
            self._examination.give_weights(reference)
        done, self._examination.history = self._examination.history, []
        for order, count in done if self._runner.timed_order is Order.CHAIN else ():
            self._runner.release(
                self._run_reference(reference, self._examination.fresh(1) * count, order)
            )
        for _ in range(WARM_UP_BURSTS):
            self.warm_up_again(candidate, reference)

    def warm_up_again(self, candidate: Worker, reference: Worker) -> None:
        """Run an untimed burst of both: whatever else the device did came before it."""
        count = min(WARM_UP_CALLS, self._runner.layout.num_slots)
        self.both(candidate, reference, self._examination.fresh(count))

    def _num_calls(self, candidate: Worker, reference: Worker) -> int:
        """Return the number of calls in a timed burst: on a GPU a fast candidate gets more."""
        count = self._examination.num_calls()
        if self._runner.timed_order is Order.CHAIN:
            return count
        burst_us = self.both(candidate, reference, self._examination.fresh(count))[Role.CANDIDATE]
        net_us = max(FLOOR_US, (burst_us - self.time_empty(count)) / count)
        wanted = max(count, _coarse(LEAST_BURST * self._protocol.burst_us / net_us))
        return min(wanted, self._runner.layout.num_slots)

    def _replanned(self, count: int, ratios: Sequence[float]) -> int:
        """Return the number of calls in the next timed bursts.

        It rises once the candidate turns out faster than it seemed. On a GPU it rises where no gain
        is certified when one might be: what disturbs a burst is the same for longer ones.
        """
        if self._mixes_families:
            if not rule.is_undecided(ratios, self._protocol):
                return count
            enough = max(count, self._examination.num_calls(times=LONGER))
            return min(LONGER * count, enough, self._runner.layout.num_slots)
        wanted = self._examination.num_calls()
        return wanted if wanted >= REPLANNED * count else count

    def both(
        self,
        candidate: Worker,
        reference: Worker,
        draws: Sequence[Draw],
        order: Order | None = None,
    ) -> dict[Role, float]:
        """Return the µs of a burst of each role on the same inputs, beside the timed ones."""
        known = self._run_reference(reference, draws, order)
        burst = self._examination.run(candidate, draws, order)
        self._settle(candidate, known, burst)
        return dict(zip(ROLES, took_us((known, burst)), strict=True))

    def _settle(self, candidate: Worker, known: Burst, burst: Burst) -> None:
        """Compare what came out of a burst of each role, and note their times."""
        if burst.order is self._examination.order:
            self.burst_times.add(known, burst)
        self._missing -= Counter(draw.family for draw in burst.draws)
        self._examination.compare(candidate, burst, exact=False, reference=known)
        self._runner.release(known)

    def _inputs(self, count: int) -> list[Draw]:
        """Return the inputs of a timed burst."""
        if self._mixes_families and self._rng.random() < count / OTHERS_IN:
            return self._examination.mixed(count, 1)
        return self._examination.fresh(count)

    @property
    def _mixes_families(self) -> bool:
        return self._runner.timed_order is Order.KEEP

    def _quad(
        self,
        candidate: Worker,
        reference: Worker,
        order: Sequence[Role],
        count: int,
        empty_us: float,
        number: int,
    ) -> dict[Role, list[float]]:
        """Run bursts in a row, both roles on the same inputs, which are new to the candidate.

        Returns the net times of calls, in µs. The two bursts of a decoy stand anywhere among them,
        one no nearer to the other than to any. So the time since a worker's last burst tells it
        nothing. All outputs are compared when the last one is held.
        """
        inputs = [self._inputs(count) for _ in range(len(order) // 2)]
        num_timed = len(inputs)
        turns = {role: iter(range(num_timed)) for role in ROLES}
        plays = [(role, next(turns[role])) for role in order]  # role and inputs of each
        if not self._mixes_families:
            for decoy in self._decoys(count):
                for role in ROLES:
                    plays.insert(self._rng.randrange(len(plays) + 1), (role, len(inputs)))
                inputs.append(decoy)
        times: dict[Role, list[float]] = {role: [] for role in ROLES}
        held: dict[tuple[Role, int], Burst] = {}
        for role, which in plays:
            if role is Role.REFERENCE:
                burst = self._run_reference(reference, inputs[which])
            else:
                burst = self._examination.run(candidate, inputs[which])
            held[role, which] = burst
        timed = [key for key in plays if key[1] < num_timed]
        spent_us = took_us([held[key] for key in timed])
        for position, ((role, _), burst_us) in enumerate(zip(timed, spent_us, strict=True)):
            net_us = (burst_us - empty_us) / count
            times[role].append(max(FLOOR_US, net_us))
            self._samples.append(
                TimingSample(
                    session=self._session,
                    quad=number,
                    position=position,
                    role=role,
                    num_calls=count,
                    burst_us=burst_us,
                    net_us=net_us,
                )
            )
        for which in range(len(inputs)):
            known, burst = held[Role.REFERENCE, which], held[Role.CANDIDATE, which]
            self._settle(candidate, known, burst)
        return times

    def _decoys(self, count: int) -> list[list[Draw]]:
        """Return the inputs of the decoys in a quad; those of the next ones are drawn, too."""
        num_inputs = ENOUGH_INPUTS * (len(self._oracle.families) - 1)
        wanted = -(-num_inputs // ENOUGH_DECOYS)
        others = min(count, max(1, count // OTHERS_IN_DECOY, wanted))
        most = 1 if others >= wanted else 2
        while len(self._next_decoys) < most:
            self._next_decoys.append(self._examination.mixed(count, others))
        number = sum(self._rng.random() < DECOYS for _ in range(most))
        return [self._next_decoys.pop(0) for _ in range(number)]

    def bursts(
        self, candidate: Worker, reference: Worker, order: Order, count: int, times: int
    ) -> dict[Role, list[float]]:
        """Run some bursts beside the timed ones; return the times of each role, in µs."""
        burst_us: dict[Role, list[float]] = {role: [] for role in ROLES}
        for _ in range(times):
            took_us = self.both(candidate, reference, self._examination.fresh(count), order)
            for role, each_us in took_us.items():
                burst_us[role].append(each_us)
        return burst_us

    def last_speedup(self) -> float:
        """Return the median speedup of the quads of the last length.

        A worker sees when bursts become longer: a candidate that was fast in the first ones alone
        is not fast. The first few alone say too little of a small gain to be asked, too.
        """
        ratios: list[float] = []
        last = [sample for sample in self._mine() if sample.num_calls == self.num_calls]
        for _, samples in itertools.groupby(last, key=lambda sample: sample.quad):
            times: dict[Role, list[float]] = defaultdict(list)
            for sample in samples:
                times[sample.role].append(max(FLOOR_US, sample.net_us))
            ratios.append(statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE]))
        return math.exp(median(ratios))

    def _mine(self) -> list[TimingSample]:
        return [s for s in self._samples if s.session == self._session]

    @property
    def num_calls(self) -> int:
        """The number of calls in the last timed burst."""
        return self._mine()[-1].num_calls

    def net_us(self, role: Role) -> float:
        """Return the median net time of a call in timed bursts, in µs."""
        return max(FLOOR_US, median(s.net_us for s in self._mine() if s.role is role))

    def burst_us(self, role: Role) -> float:
        """Return the median time of a timed burst of `num_calls`, in µs."""
        count = self.num_calls
        return median(s.burst_us for s in self._mine() if s.role is role and s.num_calls == count)

    def _run_reference(
        self, worker: Worker, draws: Sequence[Draw], order: Order | None = None
    ) -> Burst:
        order = order or self._examination.order
        return run_own(self._runner, worker, draws, self._protocol, order)


def _coarse(count: float) -> int:
    """Return the next number of three binary digits: costs are known for some numbers only."""
    step = 1 << max(0, math.ceil(count).bit_length() - 3)
    return math.ceil(count / step) * step
