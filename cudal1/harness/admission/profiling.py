"""The profile of a reference by `torch.profiler`; runs in the problem's process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cudal1.harness.admission.reference_profile import OperatorTime, ReferenceProfile
from cudal1.harness.admission.required import RejectedError
from cudal1.harness.device.ceilings import Ceilings
from cudal1.harness.inputs.draws import not_listed
from cudal1.harness.reference.reference import load_reference
from cudal1.harness.reference.reference_code import in_time
from cudal1.harness.shared.seeding import seed_others, seed_torch
from cudal1.harness.shared.wire import arguments
from cudal1.kept import in_words
from cudal1.problem import Problem
from cudal1.protocol import Mode, PrecisionClass

if TYPE_CHECKING:
    import torch

WARM_CALLS = 2
"""Calls before any is measured: the first ones choose algorithms and allocate."""
PROFILED_CALLS = 5
"""Calls below the profiler; its numbers are divided by them."""
TIMED_CALLS = 15
TIMED_S = 0.5
"""Seconds of timed calls after which no further one is timed."""
NUM_OPERATORS = 24
"""Number of operators that are reported, by falling time."""
NAME_LENGTH = 120
"""Characters of an operator's name; those of templated kernels are longer."""


def profiled(problem: Problem, *, device: str, mode: Mode) -> dict[str, Any]:
    """Return the fields of a `ReferenceProfile` of one call.

    Raises:
        RejectedError: its inputs are no list of tensors. Any other error is the problem's own.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    where = torch.device(device)
    with in_time():
        module = load_reference(problem)
        _seed(0, where)
        with where:
            model = module.make()
        if mode is not Mode.CONSTRUCTED:
            model.train(mode is Mode.TRAIN)
        model.to(where)
        _seed(1, where)
        with where:
            drawn = module.draw()
    if said := not_listed(drawn):
        raise RejectedError(said)
    inputs = [value.detach().to(where) for value in drawn]

    def call() -> Any:
        with torch.no_grad():
            return model(*inputs)

    with in_time():
        for _ in range(WARM_CALLS):
            call()
        call_us = _median_us(call, where)
        operators, num_launches = _operators(call, where)
        num_flops = _flops(call)
        outputs = call()
    held = [*model.parameters(), *model.buffers()]
    input_bytes, weight_bytes, output_bytes = (
        _bytes(tensors) for tensors in (inputs, held, tree_leaves(outputs))
    )
    peaks = Ceilings(device, core=None).peaks()
    moved = input_bytes + weight_bytes + output_bytes
    computing_us = num_flops / peaks.flops_per_us(PrecisionClass.STRICT)
    profile = ReferenceProfile(
        problem_id=problem.id,
        device=where.type,
        inputs=in_words(arguments(inputs, module.constants)),
        call_us=call_us,
        operators=tuple(operators),
        num_launches=num_launches,
        input_bytes=input_bytes,
        weight_bytes=weight_bytes,
        output_bytes=output_bytes,
        num_flops=num_flops,
        roofline_us=max(peaks.moving_us(moved), computing_us),
    )
    return {"profile": profile.model_dump(mode="json")}


def _median_us(call: Callable[[], Any], where: torch.device) -> float:
    """Return the median µs of a few calls: an orientation, not a measurement."""
    import torch

    times_us: list[float] = []
    while len(times_us) < TIMED_CALLS and sum(times_us) < TIMED_S * 1e6:
        started = time.perf_counter()
        call()
        if where.type == "cuda":
            torch.cuda.synchronize()
        times_us.append((time.perf_counter() - started) * 1e6)
    return statistics.median(times_us)


def _operators(call: Callable[[], Any], where: torch.device) -> tuple[list[OperatorTime], float]:
    """Return operators by falling time of their own, and the number of launches in one call."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    is_gpu = where.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_gpu else [])]
    with profile(activities=activities) as watched:
        for _ in range(PROFILED_CALLS):
            call()
        if is_gpu:
            torch.cuda.synchronize()
    found: list[OperatorTime] = []
    for event in watched.key_averages():
        on_gpu = str(event.device_type).endswith("CUDA")
        if is_gpu != on_gpu or not (on_gpu or str(event.key).startswith("aten::")):
            continue
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append(
            OperatorTime(
                name=str(event.key)[:NAME_LENGTH],
                num_calls=event.count / PROFILED_CALLS,
                self_us=max(0.0, spent / PROFILED_CALLS),
            )
        )
    found.sort(key=lambda each: each.self_us, reverse=True)
    return found[:NUM_OPERATORS], sum(each.num_calls for each in found)


def _flops(call: Callable[[], Any]) -> int:
    """Return the operations of products and convolutions in one call, as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        call()
    return int(counted.get_total_flops())


def _bytes(values: Iterable[Any]) -> int:
    """Return the bytes of the memory that tensors among some values lie in, each piece once."""
    import torch

    pieces = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in values
        if isinstance(each, torch.Tensor)
    }
    return sum(pieces.values())


def _seed(seed: int, where: torch.device) -> None:
    seed_torch(seed, where)
    seed_others(seed)
