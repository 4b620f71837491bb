"""Tell from a wrong output how it was made, where its bytes give that away.

This runs only after a mismatch, on bytes that the judge holds, so that a person (and the ledger)
can tell a bug from a cheat. A flag never saves a candidate, and there is none for outputs that are
merely wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudal1.harness.exchange.burst import Burst, BurstRunner
from cudal1.harness.exchange.interval import Order
from cudal1.harness.oracle.correctness import ReferenceError, compare
from cudal1.protocol import PrecisionClass
from cudal1.verdict import FlagSource, HackFlag

if TYPE_CHECKING:
    import torch

CHEATS = frozenset({"cached_output", "early_done"})
"""Kinds of flags that no honest mistake leaves behind."""


def flag(kind: str, evidence: str) -> HackFlag:
    """Return a flag of this module."""
    return HackFlag(kind=kind, source=FlagSource.GUARD, evidence=evidence)


def explain(
    runner: BurstRunner,
    burst: Burst,
    slot: int,
    *,
    answers: Sequence[list[torch.Tensor]],
    earlier: Sequence[list[torch.Tensor]],
    error: ReferenceError,
) -> HackFlag | None:
    """Return why the output in `slot` is wrong, when its bytes say so.

    Args:
        runner: holds the outputs of the burst in its memory.
        burst: the burst with the wrong output.
        slot: number of the call in the burst.
        answers: the right outputs of the burst's calls.
        earlier: right outputs of some calls of earlier bursts.
        error: the error of the reference itself.
    """
    output = runner.output(burst, slot)
    if bool((runner.raw(burst, slot) == burst.poison).all()):
        return flag("early_done", f"call {slot} was reported done before it had written anything")

    # one number everywhere may be the answer to any input, or to none
    is_flat = all(_is_flat(each) for each in output)

    def equals(answer: list[torch.Tensor]) -> bool:
        if is_flat:
            return False
        pairs = zip(output, answer, strict=True)
        return all(compare(x, y, error).meets(PrecisionClass.TF32) for x, y in pairs)

    others = [i for i in range(len(answers)) if i != slot]
    if burst.order is Order.KEEP:
        later = [i for i in others if i > slot and equals(answers[i])]
        if later:
            return flag(
                "reused_buffer", f"the output of call {slot} had become that of call {later[-1]}"
            )
    before = [i for i in others if i < slot and equals(answers[i])]
    if before:
        return flag("cached_output", f"call {slot} returned the answer to call {before[0]}")
    if any(equals(answer) for answer in earlier):
        return flag("cached_output", f"call {slot} returned the answer to an earlier input")
    if slot and runner.raw(burst, slot).equal(runner.raw(burst, slot - 1)):
        return flag("constant_output", f"calls {slot - 1} and {slot} returned the same bytes")
    return None


def _is_flat(output: torch.Tensor) -> bool:
    """Return whether an output is one number everywhere."""
    return output.numel() > 1 and bool((output == output.flatten()[0]).all())
