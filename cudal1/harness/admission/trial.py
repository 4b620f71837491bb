"""The trial of a reference: requirements on it to be judged at all; runs in its problem's process.

A reference is refused when its answers could not be compared. It is weak when a candidate that
skips work could not be told from one that does it (`effect`).

The module is long because it holds all reasons.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudal1.errors import SuiteError
from cudal1.harness.admission.required import (
    RejectedError,
    require_accuracy,
    require_same_form,
    require_same_inputs,
    require_values,
    tensor,
)
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.device.turns import Turns
from cudal1.harness.inputs.draws import not_listed
from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.effect import Effect, distance, effect, is_noticed
from cudal1.harness.reference.reference import Reference, load_reference
from cudal1.harness.reference.reference_code import in_time
from cudal1.harness.shared.seeding import seed_others, seed_torch
from cudal1.harness.shared.wire import tensor_places
from cudal1.problem import Problem
from cudal1.protocol import Mode, PrecisionClass

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]

FIRST_SEED = 1
OTHER_SEEDS = (2, 3)
NUM_TIMED_CALLS = 5
TIMED_S = 0.3
"""Seconds of timed calls after which no further one is timed."""
REPEATABLE = 1e-6
"""Relative L2 distance allowed for a repeated call: room for the order of atomic additions on a
GPU."""
TOO_SLOW = "too slow"
"""Beginning of a reason that is about time."""


RequireRoom = Callable[[int], None]
"""A function that is told the bytes of a call's inputs, then of both its inputs and outputs. It
raises CrowdedError where a judge's share of the memory is too small for a problem with such
calls."""


def any_room(_: int) -> None:
    """Do nothing: no other judge shares the memory."""


def try_out(
    problem: Problem,
    *,
    device: str,
    max_reference_ms: float,
    mode: Mode = Mode.CONSTRUCTED,
    turns: Turns | None = None,
    is_examined: bool = False,
    require_room: RequireRoom = any_room,
) -> dict[str, Any]:
    """Return the trial's result for a reference that can be judged: fields of `admission.Probe`.

    The field `lasts` is added: whether everything was examined, for which memory may be too small.

    Args:
        problem: its source runs here.
        device: PyTorch's name. Where no GPU is, the reference is tried on the CPU, without a limit
            to its time.
        max_reference_ms: milliseconds that one call may take at most.
        mode: the mode in which the reference runs.
        turns: the turns in which judges of one device use it.
        is_examined: whether an examination follows, which computes in float64 (`Traits.off_by`) and
            looks at the effect of inputs (`Traits.weakness`).
        require_room: requires memory for calls as large as the reference's.

    Raises:
        CrowdedError: `require_room` raised it.
        RejectedError: it cannot be judged. Any other error was raised by the file itself.
    """
    import torch

    used = device if device == "cpu" or torch.cuda.is_available() else "cpu"
    reference = _Reference(problem, used, mode, turns or Turns())
    first = reference.inputs(FIRST_SEED)
    require_room(_num_bytes(first))
    outputs = reference.call(first)
    require_room(_num_bytes([*first, *outputs]))
    require_values(outputs)
    reference_us = reference.time_us(first)
    if reference_us > max_reference_ms * 1000:  # another process may have used the device meanwhile
        with reference.turns.timing():
            reference_us = reference.time_us(first)
    if used == device and reference_us > max_reference_ms * 1000:
        said = f"{reference_us / 1000:.3g} ms a call, more than {max_reference_ms:g} ms"
        raise RejectedError(f"{TOO_SLOW}: {said}", lasts=False)
    _seed(99, used)  # what forward draws differs from the first call's
    if distance(outputs, reference.call(first)) > REPEATABLE:
        raise RejectedError("gives different outputs for equal inputs and weights")
    _require_equal_twin(reference, reference.twin(), first, outputs)
    accuracy = _Accuracy(None if is_examined else reference.again())
    accuracy.look(first, outputs)
    for seed in OTHER_SEEDS:
        _require_comparable(reference, first, outputs, seed, accuracy)
    accuracy.require()
    moved = None if is_examined else _effect(reference, first, outputs)
    return {
        "device": used.partition(":")[0],
        "reference_us": reference_us,
        "input_effect": moved and moved.least,
        "weakness": moved and moved.weakness,
        "input_bytes": _num_bytes(first),
        "output_bytes": _num_bytes(outputs),
        "output_shapes": [list(t.shape) for t in outputs],
        "lasts": not accuracy.lacked_memory,
    }


class _Reference:
    """A problem file, executed, with its model made under a fixed seed.

    Args:
        problem: the problem of the file.
        device: PyTorch's name.
        mode: the mode in which the model runs.
        turns: the turns in which it uses the device.
        module: the file's module, if it was imported; None: it is imported anew.
    """

    def __init__(
        self,
        problem: Problem,
        device: str,
        mode: Mode,
        turns: Turns,
        module: Reference | None = None,
    ) -> None:
        import torch

        self._problem = problem
        self._mode = mode
        self.turns = turns
        self._device = torch.device(device)
        turns.pass_on()
        try:
            with in_time():
                self._module = module or load_reference(problem)
                _seed(0, device)
                with self._device:
                    self._model = self._module.make()
        except SuiteError as error:  # maybe because a package is missing
            said = str(error).removeprefix(f"{problem.key}: ")
            raise RejectedError(said, lasts=False) from error
        if mode is not Mode.CONSTRUCTED:
            self._model.train(mode is Mode.TRAIN)
        self._model.to(self._device)

    def again(self) -> _Reference:
        """Return another model of the same module, with the same weights."""
        return _Reference(self._problem, str(self._device), self._mode, self.turns, self._module)

    def twin(self) -> _Reference:
        """Return a model of the file imported anew."""
        made = _Reference(self._problem, str(self._device), self._mode, self.turns)
        made._module.constants.update(self._module.constants)
        return made

    def double(self) -> _Reference:
        """Switch the model to float64, and return this reference."""
        self._model.double()
        return self

    def inputs(self, seed: int) -> Tensors:
        """Return the tensors of one call; other arguments are in the module's `constants`."""
        self.turns.pass_on()
        _seed(seed, self._device)
        with in_time(), self._device:
            drawn = self._module.draw()
        if said := not_listed(drawn):
            raise RejectedError(said)
        places = tensor_places(len(drawn), self._module.constants)
        found = [
            tensor(each, f"input {i}", is_output=False)
            for i, each in zip(places, drawn, strict=True)
        ]
        return [value.detach().to(self._device) for value in found]

    def has_weights_of(self, other: _Reference) -> bool:
        """Return whether both models have the same parameters and buffers."""
        mine, others = self._model.state_dict(), other._model.state_dict()
        return mine.keys() == others.keys() and all(
            tensor.equal(others[name]) for name, tensor in mine.items()
        )

    def call(self, inputs: Tensors) -> Tensors:
        """Return the outputs for copies of inputs."""
        return self._called([value.clone() for value in inputs])

    def exact_call(self, inputs: Tensors) -> Tensors:
        """Return the outputs for copies of inputs in float64."""
        return self._called(
            [
                value.double()
                if value.is_floating_point() and value.element_size() < 8
                else value.clone()
                for value in inputs
            ]
        )

    def _called(self, given: Tensors) -> Tensors:
        import torch

        self.turns.pass_on()
        with in_time(), torch.no_grad():
            result: Any = self._model(*given)
        results = list(result) if isinstance(result, tuple | list) else [result]
        return [tensor(value, "an output", is_output=True) for value in results]

    def time_us(self, inputs: Tensors) -> float:
        """Return the median µs of a few calls: an orientation, not a measurement."""
        import torch

        times_us: list[float] = []
        while len(times_us) < NUM_TIMED_CALLS and sum(times_us) < TIMED_S * 1e6:
            started = time.perf_counter()
            self.call(inputs)
            if self._device.type == "cuda":
                torch.cuda.synchronize()
            times_us.append((time.perf_counter() - started) * 1e6)
        return statistics.median(times_us)


def _seed(seed: int, device: str | torch.device) -> None:
    import torch

    seed_torch(seed, torch.device(device))
    seed_others(seed)


def _require_equal_twin(
    reference: _Reference, twin: _Reference, first: Tensors, outputs: Tensors
) -> None:
    """Refuse a file that gives other outputs when it is imported again."""
    if distance(outputs, twin.call(first)) <= REPEATABLE:
        return
    if not reference.has_weights_of(twin):
        raise RejectedError(
            "draws its weights with another generator than torch's, numpy's or random's"
        )
    raise RejectedError("gives different outputs for equal inputs and weights")


class _Accuracy:
    """The distance of a reference's outputs from float64 ones, where it can run in float64.

    Args:
        exact: the reference that computes in float64; None: nothing is compared.
    """

    def __init__(self, exact: _Reference | None) -> None:
        self._exact = exact
        self._off = 0.0
        self.lacked_memory = False

    def look(self, inputs: Tensors, outputs: Tensors) -> None:
        """Compare the outputs of one call."""
        if self._exact is None:
            return
        try:
            answers = self._exact.double().exact_call(inputs)
        except Exception as error:  # noqa: BLE001 -- a third party's code: it may assert its dtype or lack a kernel
            self.lacked_memory |= lacks_memory(f"{type(error).__name__}: {error}")
            return
        for x, y in zip(answers, outputs, strict=True):
            is_float = y.is_floating_point()
            off = distance([x], [y]) if is_float else float((x != y).double().mean())
            self._off = max(self._off, off)

    def require(self) -> None:
        """Refuse outputs that are mostly rounding errors."""
        require_accuracy(self._off)


def _require_comparable(
    reference: _Reference, first: Tensors, outputs: Tensors, seed: int, accuracy: _Accuracy
) -> None:
    """Refuse a reference with inputs or outputs of another draw that are not like the first."""
    drawn = reference.inputs(seed)
    require_same_inputs(first, drawn)
    if all(a.equal(b) for a, b in zip(first, drawn, strict=True)):
        raise RejectedError("get_inputs() draws the same values whatever the seed")
    answers = reference.call(drawn)
    require_values(answers)
    require_same_form(outputs, answers)
    accuracy.look(drawn, answers)


def _effect(reference: _Reference, first: Tensors, outputs: Tensors) -> Effect:
    """Return the effect of the inputs by the loosest class, where none is asked."""
    return effect(
        first,
        outputs,
        OTHER_SEEDS,
        reference.inputs,
        reference.call,
        lambda answers, others: is_noticed(
            answers, others, ReferenceError(0.0, 0.0), PrecisionClass.HALF
        ),
    )


def _num_bytes(tensors: Tensors) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
