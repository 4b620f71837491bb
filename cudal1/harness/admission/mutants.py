"""The trial of a problem's correctness check: it must tell wrong candidates from right ones.

A candidate can be no better than the check that it has to pass. So before any is judged, wrong
outputs of our own making go through the same check: kinds of inputs, their number, changes of
weights, bounds. A problem that lets one through is repaired or left out (docs/checks.md).

The module is long because it repeats the check of `staged_check` step for step.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cudal1.errors import SuiteError
from cudal1.harness.admission import mutations
from cudal1.harness.admission.mutations import Case
from cudal1.harness.device.device import Device
from cudal1.harness.device.quiet import undisturbed
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.problem_workers import too_large
from cudal1.harness.oracle.exactness import Admission, is_exact_first
from cudal1.harness.oracle.operators import Dropping
from cudal1.harness.oracle.oracle import Draw, Oracle, Tensors
from cudal1.harness.oracle.traits import Traits
from cudal1.kill_table import KillTable, Mutant
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import Contract, EvalProtocol, PrecisionClass

if TYPE_CHECKING:
    import torch

LAST_OPERATOR = "last_operator"
MAY_APPLY_LATER = ("mean", "ignores_input")
"""Mutants that a first look cannot rule out: it may see flat outputs, or an unchanged input."""
MAX_DROPPED = 6
"""Number of last operators that are tried, backwards, until leaving one out changes an output."""
TOO_COARSE = {
    PrecisionClass.STRICT: ("float16", "bfloat16"),
    PrecisionClass.TF32: ("bfloat16",),
    PrecisionClass.HALF: (),
}
"""Half types that a class does not allow; TF32 has the ten bits of float16."""
UNCHANGED_IS_FINE = frozenset(
    {"shuffled", "first_weights", "other_weights", "float16", "bfloat16", LAST_OPERATOR}
)
"""Kinds that are no mutants where they change no bit of any output: equal rows, weights without
effect, an operator that does nothing (dropout, a second ReLU), values that a half type holds. For
any other kind an unchanged output is the worst case: the output depends on nothing that was
skipped."""


def examine(
    problem: Problem,
    protocol: EvalProtocol,
    device: Device,
    traits: Traits | None = None,
    turns: Turns | None = None,
) -> tuple[KillTable, Traits]:
    """Return the kill table of a problem under `protocol`, and what was learned of its reference.

    The reference runs in this process, as in a judge's: admission has tried it earlier. The
    problem's id seeds the inputs, so that the same problem gives the same table.

    Args:
        problem: the problem that is checked.
        protocol: defines the check.
        device: the device that is to judge candidates.
        traits: known traits of the reference; None: they are found out.
        turns: the turns in which judges of one device use it.

    Raises:
        SuiteError: the reference cannot be run here, or there is too little memory, as `shortage`
            recognizes: others may have had it.
        DeviceLostError: the device computes nothing after an error.
    """
    try:
        with device.watched(), undisturbed(device):
            trial = _Trial(problem, protocol, device, traits, turns)
            return trial.table(), trial.traits
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(f"{type(error).__name__}: {error}"):
            raise
        said = _too_large(problem, device, error)
    finally:  # a shortage is over here, and so are its frames, which held what filled the memory
        _give_memory_back(device)
    raise SuiteError(said)


def _too_large(problem: Problem, device: Device, error: Exception) -> str:
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return too_large(problem, device, error)
    said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")[:300]
    return f"{problem.key}: too large for the memory here: {said}; lower its sizes"


def _give_memory_back(device: Device) -> None:
    """Free memory of a GPU: another process tries the next problem beside this one."""
    if device.device_class is DeviceClass.CUDA:
        import torch

        gc.collect()
        with suppress(RuntimeError):  # the device is lost, which was reported
            torch.cuda.empty_cache()


@dataclass
class _Suspect:
    """A mutant under trial."""

    name: str
    make: Callable[[Oracle, Case], Tensors | None]
    applies: bool = True
    num_tried: int = 0
    is_unchanged: bool = True
    killed_by: str | None = None
    killed_after: int | None = None

    @property
    def kind(self) -> str:
        return self.name.partition("[")[0]

    def result(self) -> Mutant:
        harmless = self.is_unchanged and self.kind in UNCHANGED_IS_FINE
        if self.killed_by is not None:
            return Mutant(
                name=self.name, killed=True, family=self.killed_by, num_inputs=self.killed_after
            )
        if self.num_tried == 0 or harmless:
            return Mutant(name=self.name, killed=None)
        return Mutant(name=self.name, killed=False, num_inputs=self.num_tried)


class _Trial:
    """The check of `staged_check.StagedCheck`, with mutants in place of a worker's outputs."""

    def __init__(
        self,
        problem: Problem,
        protocol: EvalProtocol,
        device: Device,
        traits: Traits | None,
        turns: Turns | None,
    ) -> None:
        import torch

        place = torch.device(device.torch_name)
        self._oracle = Oracle(
            problem,
            weight_seed=protocol.seed,
            device=place,
            precision=protocol.precision,
            mode=protocol.mode,
            traits=traits,
            turns=turns,
        )
        self.traits = self._oracle.traits
        self._first_weights = self._oracle.in_force
        self._problem = problem
        self._protocol = protocol
        self._is_drop_in = protocol.contract is Contract.DROP_IN
        self._has_other_weights = (
            self._oracle.can_change_weights if self._is_drop_in else self._oracle.is_seeded
        )
        self._rng = random.Random(problem.id)
        self._num_inputs = 0
        self._deck: list[str] = []
        self._weight_seed: int | None = None
        self._first: Case | None = None
        self._refused: str | None = None
        before = self._oracle.draw(self._rng.getrandbits(62))
        recorded = Dropping()
        outputs = mutations.run(self._oracle, before, recorded)
        if outputs is None:  # unrecorded it may run, and no operator can be left out
            recorded, outputs = Dropping(), self._oracle.outputs(before)
        self._previous = outputs
        look = self._case(before, outputs, outputs)
        self._suspects = self._all_suspects(replace(look, first=look))
        self._dropped = [
            _Suspect(LAST_OPERATOR, _dropping(number))
            for number in recorded.droppable[: -MAX_DROPPED - 1 : -1]
        ]

    def table(self) -> KillTable:
        is_weak = self.traits.weakness is not None
        if is_weak:  # no gain counts, so nothing has to be told apart
            self._suspects, self._dropped = [], []
        for number, target in enumerate(self._protocol.correctness_stages):
            if (number > 0 if self._is_drop_in else number == 1) and self._has_other_weights:
                self._weight_seed = self._rng.getrandbits(62)
                self._give_weights(self._weight_seed)
            while self._num_inputs < target and self._refused is None:
                # of a weak reference only whether the check admits its own outputs is asked
                if not (self._alive() or (is_weak and number == 0)):
                    break
                self._try_all(self._draw(), number + 1)
        results = [suspect.result() for suspect in self._dropped]
        last = next((m for m in results if m.killed is not None), None)
        mutants = [suspect.result() for suspect in self._suspects]
        mutants.append(last or Mutant(name=LAST_OPERATOR, killed=None))
        return KillTable(
            problem_id=self._problem.id,
            precision=self._protocol.precision,
            mutants=tuple(mutants),
            refused_reference=self._refused,
            invariants=self._oracle.invariants,
        )

    def _case(self, draw: Draw, outputs: Tensors, previous: Tensors) -> Case:
        return Case(
            draw,
            outputs,
            previous,
            self._first,
            self._weight_seed,
            self._under,
            has_other_weights=self._has_other_weights,
        )

    def _give_weights(self, seed: int) -> None:
        """Change the oracle's weights in the way that a candidate's weights change."""
        if self._is_drop_in:
            self._oracle.change_weights(seed)
        else:
            self._oracle.reseed(seed)

    @contextmanager
    def _under(self, seed: int | None) -> Iterator[None]:
        """Compute with the weights of a seed, None: the first ones; then restore the weights."""
        before = self._oracle.in_force
        try:
            if seed is None:
                self._oracle.restore(self._first_weights)
            else:
                self._give_weights(seed)
            yield
        finally:
            self._oracle.restore(before)

    def _alive(self) -> list[_Suspect]:
        """Return the mutants worth trying; of operators, up to the last one that has an effect."""
        alive = [s for s in self._suspects if s.applies and s.killed_by is None]
        for suspect in self._dropped:
            if suspect.killed_by is not None:
                break
            alive.append(suspect)
            if not suspect.is_unchanged:
                break
        return alive

    def _all_suspects(self, look: Case) -> list[_Suspect]:
        import torch

        num_outputs = len(look.outputs)
        off_by = mutations.OFF_BY[self._protocol.precision]
        made_of_outputs = mutations.OUTPUTS | {"one_off": partial(mutations.one_off, share=off_by)}
        found = [
            _Suspect(name if num_outputs == 1 else f"{name}[{place}]", _of_output(change, place))
            for name, change in made_of_outputs.items()
            for place in range(num_outputs)
        ]
        calls = {
            "first_answer": mutations.first_answer,
            "first_weights": mutations.first_weights,
            "other_weights": mutations.other_weights,
            "no_small_rows": mutations.no_small_parts(0),
            "no_small_columns": mutations.no_small_parts(-1),
        }
        for place in range(len(look.draw.inputs)):
            calls[f"ignores_input[{place}]"] = mutations.ignores_input(place)
            calls[f"passes_input[{place}]"] = mutations.passes_input(place)
        for dtype in TOO_COARSE[self._protocol.precision]:
            calls[dtype] = mutations.rounded_to(getattr(torch, dtype))
        found += [_Suspect(name, make) for name, make in calls.items()]
        for suspect in found:
            if suspect.kind == "first_weights":
                suspect.applies = self._has_other_weights
            elif suspect.kind not in MAY_APPLY_LATER:
                suspect.applies = suspect.make(self._oracle, look) is not None
        return found

    def _draw(self) -> Draw:
        if self._first is None:
            return self._oracle.draw(self._rng.getrandbits(62))
        self._deck = self._deck or self._oracle.deck(self._rng)
        return self._oracle.draw(self._rng.getrandbits(62), self._deck.pop())

    def _try_all(self, draw: Draw, stage: int) -> None:
        outputs = mutations.run(self._oracle, draw)
        if outputs is None:
            if draw.is_own:
                self._refused = f"it raises an error on input {self._num_inputs + 1}"
            return
        # also on the problem's own inputs, on which a check must not refuse the reference
        is_exact = draw.is_own or is_exact_first(self._oracle, stage, self._num_inputs)
        admission = Admission(
            self._oracle, draw, outputs, self._protocol.precision, is_exact=is_exact
        )
        if admission.says_nothing:
            return
        self._num_inputs += 1
        case = self._case(draw, outputs, self._previous)
        is_admitted = admission.admits(outputs)
        if not is_admitted:
            self._refused = f"input {self._num_inputs} ({draw.family})"
        for suspect in self._alive():
            self._try(suspect, case, admission, is_admitted=is_admitted)
        self._first, self._previous = self._first or case, outputs

    def _try(
        self, suspect: _Suspect, case: Case, admission: Admission, *, is_admitted: bool
    ) -> None:
        """Have the check look at a mutant; `is_admitted`: it admits the reference's own outputs."""
        changed = suspect.make(self._oracle, case)
        if changed is None:
            return
        suspect.num_tried = self._num_inputs
        is_killed = not admission.admits(changed)
        # of equal outputs the check says the same, so no element need be compared
        if not (is_killed and is_admitted) and _are_equal(changed, case.outputs):
            return
        suspect.is_unchanged = False
        if is_killed:
            suspect.killed_by, suspect.killed_after = case.draw.family, self._num_inputs


def _are_equal(ones: Tensors, others: Tensors) -> bool:
    import torch

    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def _of_output(
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None], place: int
) -> Callable[[Oracle, Case], Tensors | None]:
    """Return a mutant that changes one output and leaves the others right."""

    def changed(_: Oracle, case: Case) -> Tensors | None:
        result = change(case.outputs[place], case.previous[place])
        if result is None:
            return None
        return [*case.outputs[:place], result, *case.outputs[place + 1 :]]

    return changed


def _dropping(number: int) -> Callable[[Oracle, Case], Tensors | None]:
    def dropped(oracle: Oracle, case: Case) -> Tensors | None:
        return mutations.run(oracle, case.draw, Dropping(number))

    return dropped
