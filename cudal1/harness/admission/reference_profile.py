"""The profile of a reference: where the time of one call goes, and how much of it is needed."""

from __future__ import annotations

from pydantic import Field

from cudal1.record import Record

SHOWN = 8
"""Number of operators that `lines` shows; the rest is summed up."""


class OperatorTime(Record):
    """The time that one operator takes in one call, without the operators that it calls."""

    name: str = Field(max_length=200)
    """PyTorch's name, such as `aten::mm`; on a GPU the name of a kernel."""
    num_calls: float = Field(ge=0)
    """Number of times that one call of the reference runs it."""
    self_us: float = Field(ge=0)
    """Microseconds in one call of the reference."""


class ReferenceProfile(Record):
    """The profile of one call, by PyTorch's profiler, in the process that runs the reference."""

    problem_id: str
    device: str
    """PyTorch's name of the device: `cpu` or `cuda`."""
    inputs: tuple[str, ...]
    """The arguments of a call in words: `float32[8, 1024]` of a tensor, else the value itself."""
    call_us: float = Field(gt=0)
    """Median µs of a call without the profiler."""
    operators: tuple[OperatorTime, ...] = Field(max_length=64)
    """Operators, or on a GPU kernels, by falling time."""
    num_launches: float = Field(ge=0)
    """Number of operators that one call runs; on a GPU the number of kernels."""
    input_bytes: int = Field(ge=0)
    weight_bytes: int = Field(ge=0)
    """Bytes of parameters and buffers."""
    output_bytes: int = Field(ge=0)
    num_flops: int = Field(ge=0)
    """Floating point operations of matrix products and convolutions in one call."""
    roofline_us: float = Field(ge=0)
    """Least µs for reading inputs and weights once, writing outputs once and computing `num_flops`,
    at the device's measured peaks. An orientation: a candidate may do with less."""

    @property
    def roofline_share(self) -> float:
        """The share of a call's time that the roofline explains; 1 leaves nothing to gain."""
        return min(1.0, self.roofline_us / self.call_us)

    @property
    def lines(self) -> tuple[str, ...]:
        """The profile in a few lines of ASCII, for people and for prompts."""
        total_us = sum(each.self_us for each in self.operators) or 1.0
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        what = "kernels" if self.device == "cuda" else "operators"
        found = [
            f"one call: {self.call_us:.4g} us in {self.num_launches:.4g} {what}",
            f"inputs {_bytes(self.input_bytes)}, weights {_bytes(self.weight_bytes)}, outputs "
            f"{_bytes(self.output_bytes)}; products and convolutions {self.num_flops:.3g} flops",
            f"roofline: to move {_bytes(moved)} once and to compute takes {self.roofline_us:.4g} us"
            f", {100 * self.roofline_share:.0f} % of the call",
        ]
        found += [
            f"{100 * each.self_us / total_us:3.0f} % {each.self_us:.4g} us in {each.num_calls:.3g} "
            f"x {each.name}"
            for each in self.operators[:SHOWN]
        ]
        rest_us = sum(each.self_us for each in self.operators[SHOWN:])
        if rest_us:
            found.append(f"{100 * rest_us / total_us:3.0f} % {rest_us:.4g} us in others")
        return tuple(found)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
