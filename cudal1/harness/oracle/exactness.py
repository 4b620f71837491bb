"""Decide which outputs are compared with answers in float64, and when.

An output that agrees with the reference's own, within the class's tolerance and the reference's
measured error, is right. An output that does not agree may still be right: the input may be hard
for the reference, too, and float64 decides. So right outputs mostly need no float64, which at real
sizes takes more of a GPU than all calls that are judged. An output that does not agree with float64
either may be right, too: the input may be hard, and the reference lucky (`Oracle.widened`). Inputs
that are too hard for every program say nothing, if they are few (`Oracle.is_hard`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudal1.harness.oracle.answering import NUM_CHANCES, tells
from cudal1.harness.oracle.correctness import Expected, ReferenceError, is_near
from cudal1.harness.oracle.oracle import Draw, Key, Oracle, Tensors
from cudal1.protocol import PrecisionClass

EXACT_INPUTS = 16
"""Number of inputs on a CPU with outputs that are compared with float64 first. Other outputs are
compared with the reference's own, as timed ones are, and with float64 where they do not agree. On a
GPU only outputs of the first stage are compared with float64 first."""

CHANCES = (1, 2, 4, NUM_CHANCES)
"""Numbers of errors by chance after which to look whether they explain an output."""
BEYOND_LUCK = 300.0
"""Factor that the largest of several errors by chance hardly exceeds one of them by: once in two
hundred times, if one element decides. An output that is further off is wrong without the others."""
FEW_ELEMENTS = 1 << 16
"""Elements of a call's outputs up to which one of them may decide whether a draw is hard. All
errors by chance are looked at then. Of more elements, one error says as much as another."""
MANY_ELEMENTS = 1 << 24
"""Elements of a call's outputs from which a trial takes fewer errors by chance, since twice the
elements take twice the time. It may then find a mutant killed that a candidate's check, which takes
all of them, lets pass: with three errors instead of nine once in a hundred times, if one element
decides."""


def is_exact_first(oracle: Oracle, stage: int, num_inputs: int) -> bool:
    """Return whether the next output of a check is compared with float64 first.

    Args:
        oracle: computes the answers.
        stage: of the check, from 1.
        num_inputs: number of inputs that the check has compared already.
    """
    if oracle.device.type == "cuda":
        return stage == 1
    return num_inputs < EXACT_INPUTS


class Admission:
    """Says of many outputs for one draw whether the check lets them pass, by its own rule.

    Args:
        oracle: computes the answers, in float64 once that is needed.
        draw: the inputs.
        plains: the reference's own outputs.
        precision: the class that outputs have to meet.
        is_exact: whether they are compared with float64 first.
    """

    def __init__(
        self,
        oracle: Oracle,
        draw: Draw,
        plains: Tensors,
        precision: PrecisionClass,
        *,
        is_exact: bool,
    ) -> None:
        self._oracle = oracle
        self._draw = draw
        self._plains = plains
        self._precision = precision
        self._is_exact = is_exact
        self._key = oracle.exact_key(draw, plains) if is_exact else oracle.key(draw, plains)
        self._expected = [self._expectations(self._key)]
        self._widening: Widening | None = None

    @property
    def says_nothing(self) -> bool:
        """True if any output would pass."""
        return not any(self._expected[0])

    def admits(self, outputs: Tensors) -> bool:
        """Return whether outputs pass; an output of which the draw says nothing passes."""
        if not (failing := _failing(outputs, self._expected[0])):
            return True
        if not self._is_exact:
            if len(self._expected) == 1:
                self._key = self._oracle.exact_key(self._draw, self._plains)
                self._expected.append(self._expectations(self._key))
            if not (failing := _failing(outputs, self._expected[1])):
                return True
        last = self._expected[-1]
        if not all(each.is_near(outputs[p]) for p in failing if (each := last[p]) is not None):
            return False

        def lets_pass(key: Key) -> bool:
            return not _failing(outputs, self._expectations(key))

        if self._widening is None:
            most = NUM_CHANCES * MANY_ELEMENTS // max(1, sum(y.numel() for y, _ in self._key))
            self._widening = Widening(
                self._oracle, self._draw, self._key, most=max(CHANCES[1], most)
            )
        return lets_pass(self._widening.key(lets_pass))

    def _expectations(self, key: Key) -> list[Expected | None]:
        return [
            Expected(answer, error, self._precision) if tells(self._draw, error) else None
            for answer, error in key
        ]


class Widening:
    """An exact key, widened for outputs that it does not let pass: the reference may be lucky.

    Args:
        oracle: computes the answers.
        draw: the inputs.
        key: the exact key of the draw.
        most: number of errors by chance that are taken at most.
    """

    def __init__(self, oracle: Oracle, draw: Draw, key: Key, *, most: int = NUM_CHANCES) -> None:
        self._oracle = oracle
        self._draw = draw
        self._exact_key = key
        self._most = most
        self._errors = dict[int, list[ReferenceError]]()
        """The largest errors by chance, by their number."""

    def key(self, lets_pass: Callable[[Key], bool]) -> Key:
        """Return the widened key for outputs of which `lets_pass` says whether a key fits them.

        It is widened until it fits them. Each error takes the work of two calls, and many passes
        over all elements, so it is not widened to the end where no luck explains the outputs.
        """
        key = self._exact_key
        for count in CHANCES:
            if count > self._most:
                break
            key = self._oracle.widened(self._exact_key, self._by_chance(count))
            if lets_pass(key):
                break
            if count == 1 and not lets_pass([(y, error.times(BEYOND_LUCK)) for y, error in key]):
                break
        return key

    def is_hard(self) -> bool:
        """Return whether honest programs are so far off on the draw that it says nothing."""
        num_elements = sum(y.numel() for y, _ in self._exact_key)
        most = NUM_CHANCES if num_elements <= FEW_ELEMENTS else 1
        return self._oracle.is_hard(self._draw, self._exact_key, range(most))

    def _by_chance(self, count: int) -> list[ReferenceError]:
        """Return the largest of so many errors by chance."""
        if count not in self._errors:
            known = max(self._errors, default=0)
            found = self._oracle.by_chance(self._draw, self._exact_key, range(known, count))
            if known:
                pairs = zip(self._errors[known], found, strict=True)
                found = [one.larger(other) for one, other in pairs]
            self._errors[count] = found
        return self._errors[count]


def are_near(outputs: Tensors, key: Key) -> bool:
    """Return whether outputs are so near to an exact key that it is worth while to widen it.

    Only what the key says of numbers that are not whole can be widened.
    """
    return all(is_near(x, answer) for x, (answer, _) in zip(outputs, key, strict=True))


def _failing(outputs: Tensors, expected: Sequence[Expected | None]) -> list[int]:
    """Return the places of outputs that do not pass."""
    pairs = zip(outputs, expected, strict=True)
    return [
        place
        for place, (output, answer) in enumerate(pairs)
        if answer is not None and not answer.admits(output)
    ]
