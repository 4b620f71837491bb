"""Call a reference, and check what it returns: dense tensors, of the same kinds every time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cudal1.harness.device.turns import Turns
from cudal1.harness.inputs.draws import Tensors, not_dense, remedy
from cudal1.harness.reference.reference_code import ReferenceCode, kept_as_it_is
from cudal1.harness.shared.arrangement import dtype_name
from cudal1.harness.shared.wire import TensorSpec

if TYPE_CHECKING:
    import torch


class Calls:
    """Calls models of one reference, and remembers the kinds of outputs of the first call.

    Every call raises RefusalError where the reference raises an exception, or returns something
    that cannot be compared: no dense tensors, or tensors of another number, shape or type than
    usual.
    """

    def __init__(self, code: ReferenceCode, turns: Turns) -> None:
        self._code = code
        self._turns = turns
        self.specs: tuple[TensorSpec, ...] = ()
        """Types and shapes of the outputs; empty before the first call."""

    def plain(
        self,
        model: torch.nn.Module,
        inputs: Tensors,
        mode: AbstractContextManager[object] | None = None,
    ) -> Tensors:
        """Return the outputs of the reference's own model.

        A mode that interferes with its operators leaves the model as it is.
        """
        outputs = self._called(model, inputs, mode)
        if not self.specs:
            if not outputs or not all(output.numel() for output in outputs):
                said = "an output has no elements" if outputs else "forward returns nothing"
                raise self._code.refusal(said)
            self.specs = tuple(TensorSpec(dtype_name(o), tuple(o.shape)) for o in outputs)
        self._require(outputs, [dtype_name(output) for output in outputs])
        return outputs

    def exact(
        self,
        model: torch.nn.Module,
        inputs: Tensors,
        mode: AbstractContextManager[object] | None = None,
    ) -> Tensors:
        """Return the outputs of the model that computes in float64, under a mode as in `plain`."""
        outputs = self._called(model, inputs, mode)
        alike = [
            o.is_floating_point() == ("float" in spec.dtype)
            for o, spec in zip(outputs, self.specs, strict=False)
        ]
        usual = [spec.dtype for spec in self.specs]
        self._require(outputs, usual if all(alike) else [dtype_name(o) for o in outputs])
        return outputs

    def _called(
        self, model: torch.nn.Module, inputs: Tensors, mode: AbstractContextManager[object] | None
    ) -> Tensors:
        import torch

        self._turns.pass_on()
        with self._code, torch.no_grad():
            if mode is None:
                result = model(*inputs)
            else:
                with kept_as_it_is(model), mode:
                    result = model(*inputs)
            listed = list(result) if isinstance(result, tuple | list) else [result]
            return [self._dense(value) for value in listed]

    def _dense(self, value: Any) -> torch.Tensor:
        import torch

        if said := not_dense(value):
            do = remedy(value, is_output=True)
            raise self._code.refusal(f"its reference returns {said}; {do}")
        if type(value) is torch.Tensor:
            return value.detach()
        # a tensor class may read memory in its own way: the values that it shows count
        plain = torch.empty(tuple(value.shape), dtype=value.dtype, device=value.device)
        return plain.copy_(value)

    def _require(self, outputs: Tensors, dtypes: list[str]) -> None:
        if len(outputs) != len(self.specs):
            raise self._changing("number of outputs", len(self.specs), len(outputs))
        for output, dtype, spec in zip(outputs, dtypes, self.specs, strict=True):
            if output.shape != spec.shape:
                raise self._changing("output's shape", spec.shape, tuple(output.shape))
            if dtype != spec.dtype:
                raise self._changing("output's dtype", spec.dtype, dtype)

    def _changing(self, what: str, before: object, now: object) -> Exception:
        return self._code.refusal(f"the {what} changes with the inputs ({before}, then {now})")
