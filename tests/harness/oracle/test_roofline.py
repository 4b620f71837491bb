"""The floor counts only work that no candidate can avoid."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudal1.harness.device.ceilings import Ceilings, Peaks, measure
from cudal1.harness.oracle.roofline import NO_WORK, Work, least_work, may_be_view
from cudal1.protocol import PrecisionClass

N = 256
BYTES = N * N * 4
"""Bytes of one matrix."""
Call = Callable[..., Any]

DEVICES = ["cpu", *(["cuda:0"] if torch.cuda.is_available() else [])]

PEAKS = Peaks(((1 << 16, 60e3), (1 << 20, 120e3), (1 << 24, 30e3)), float32=1e5, half=1e6)


def _draws(*shapes: tuple[int, ...]) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2)]


def _work(call: Call, *shapes: tuple[int, ...]) -> Work:
    return least_work(call, _draws(*(shapes or ((N, N),))), inexactness=1e-7)


WEIGHT = torch.randn(N, N, generator=torch.Generator().manual_seed(1))

# --- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "least", "most"),
    [
        (torch.nn.functional.silu, 1.9, 2.0),
        (lambda x: torch.softmax(x, -1), 1.9, 2.0),
        (lambda x: x.cumsum(0), 1.9, 2.0),
        (torch.relu, 1.4, 1.6),  # its zeros are one value, and may share memory
        (lambda x: x.sum(-1), 0.99, 1.01),
        (lambda x: x.mean(), 0.99, 1.01),
        (lambda x: x @ WEIGHT, 1.9, 2.0),  # not the weights: half precision would do for the class
    ],
)
def test_memory_that_is_read_and_written_counts_once(call: Call, least: float, most: float) -> None:
    assert least <= _work(call).num_bytes / BYTES <= most


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x.clone(),
        lambda x: x[::2, 1:],
        lambda x: x.clamp(-100, 100),
        lambda x: x * 3.0 / 3.0,
        lambda x: x.unfold(0, 8, 4),
        lambda x: (x.t(), x[:10]),
    ],
)
def test_an_output_that_could_be_a_view_costs_nothing(call: Call) -> None:
    # memory is read in whole pieces, even for rows without their first element
    assert _work(call).num_bytes <= 0.005 * BYTES


@pytest.mark.parametrize(
    ("output", "is_so"),
    [
        (torch.tensor([0.0, 0.0, 0.0, 1.0, 7.0, 8.0]), True),  # of both inputs, some of them equal
        (torch.tensor([1.0, 1.00001, 1.00002]), True),  # as near to each other as to an element
        (torch.tensor([1.0, 2.5, 7.0]), False),
        (torch.tensor([9.0, 1.0]), False),
        (torch.tensor([True, False]), True),
    ],
)
def test_an_output_may_be_a_view_if_the_inputs_hold_its_elements(
    output: torch.Tensor, is_so: bool
) -> None:
    inputs = [torch.tensor([0.0, 1.0, 2.0]), torch.tensor([7.0, 8.0])]
    assert may_be_view(output, inputs) is is_so


def test_a_part_of_an_input_that_is_not_read_does_not_count() -> None:
    assert _work(lambda x: x[: N // 4].sum(-1)).num_bytes == pytest.approx(BYTES / 4, rel=0.02)
    assert _work(lambda x: torch.exp(x[:, ::64]).sum(-1)).num_bytes < BYTES / 6
    assert _work(lambda x, y: torch.exp(x), (N, N), (N, N)).num_bytes < 2.01 * BYTES
    stride = torch.nn.Conv2d(8, 8, 1, stride=4, bias=False).requires_grad_(False)
    taken = _work(stride, (1, 8, 64, 64)).num_bytes
    assert taken < (8 * 64 * 64 / 2 + 8 * 16 * 16) * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * 0.0,
        lambda x: torch.zeros(N, N),
        lambda x: torch.relu(WEIGHT),  # computed once, it is free
        lambda x: (x - x) @ WEIGHT + 1.0,
        lambda x: torch.softmax(x, -1).sum(-1),
        lambda x: 1000.0 + 1e-3 * x.sum(-1),
    ],
)
def test_an_input_that_the_output_hardly_depends_on_does_not_count(call: Call) -> None:
    assert _work(call).num_bytes == 0


def test_an_input_without_elements_counts_nothing() -> None:
    both = _work(lambda x, y: torch.exp(x) + y.sum(), (N, N), (0,))
    assert both == _work(torch.exp, (N, N))


def test_a_repeated_output_counts_as_often_as_it_differs() -> None:
    work = _work(lambda x: torch.exp(x.mean(0, keepdim=True)).expand_as(x).contiguous())
    assert work.num_bytes <= BYTES + N * 4
    unfolded = _work(lambda x: torch.exp(x).unfold(1, 16, 1).contiguous())
    assert unfolded.num_bytes <= 2 * BYTES
    assert _work(lambda x: (x > 0).to(torch.int8)).num_bytes <= BYTES + 2


def test_indices_and_inputs_that_never_change_do_not_count() -> None:
    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.exp(x[index]).sum(-1)

    index = torch.arange(8)
    draws = [[x, index] for (x,) in _draws((N, N))]
    assert least_work(gather, draws, inexactness=0.0).num_bytes <= 8 * N * 4 + 8 * 4
    ones = torch.ones(N, N)
    fixed = [[x, ones] for (x,) in _draws((N, N))]
    assert (
        least_work(lambda x, y: torch.exp(x * y), fixed, inexactness=0.0).num_bytes < 2.01 * BYTES
    )


@pytest.mark.parametrize(
    ("arrange", "least", "most"),
    [
        (lambda x: [x.t()], 1.9, 2.0),
        (lambda x: [x[:1].expand(N, N)], 0.0, 0.02),
        (lambda x: [x[:, ::2]], 1.4, 1.5),  # memory is read in whole pieces
        (lambda x: [x.view(-1)[: 2 * N].unfold(0, N, 1)], 0.0, 1.02),
    ],
)
def test_memory_counts_once_however_many_elements_a_view_has(
    arrange: Callable[[torch.Tensor], list[torch.Tensor]], least: float, most: float
) -> None:
    draws = [arrange(x) for (x,) in _draws((N, N))]
    work = least_work(torch.nn.functional.silu, draws, inexactness=1e-7)
    assert least <= work.num_bytes / BYTES <= most


def test_inputs_that_share_memory_are_read_once() -> None:
    shared = [[x, x.t()] for (x,) in _draws((N, N))]
    work = least_work(lambda x, y: torch.exp(x + y), shared, inexactness=1e-7)
    assert 1.2 <= work.num_bytes / BYTES <= 1.5  # half of the outputs are alike
    apart = [[x, y] for x, y in _draws((N, N), (N, N))]
    work = least_work(lambda x, y: torch.exp(x + y), apart, inexactness=1e-7)
    assert work.num_bytes / BYTES > 2.8


def test_a_product_of_transposed_inputs_counts_like_any_other() -> None:
    draws = [[x.t(), y] for x, y in _draws((N, N), (N, N))]
    assert least_work(torch.matmul, draws, inexactness=1e-7).num_flops == N**3


def test_a_reference_that_is_inexact_or_not_finite_proves_nothing() -> None:
    assert least_work(torch.exp, _draws((N, N)), inexactness=0.01) == NO_WORK
    assert least_work(torch.exp, _draws((N, N)), inexactness=float("nan")) == NO_WORK
    assert _work(torch.log) == NO_WORK


def test_a_reference_without_a_gradient_or_that_works_in_place_has_a_floor() -> None:
    assert 0 < _work(lambda x: x.argsort(-1)).num_bytes <= N * N * 8
    assert _work(lambda x: x.mul_(2.0).sigmoid_()).num_bytes > 1.9 * BYTES
    assert _work(lambda x: x.detach().exp()).num_bytes <= BYTES


# --- FLOPs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x @ y,
        lambda x, y: x.t() @ y,
        lambda x, y: torch.addmm(y, x, y),
        lambda x, y: torch.bmm(x.view(1, N, N), y.T.unsqueeze(0)),
        lambda x, y: torch.nn.functional.linear(x, WEIGHT),
    ],
)
def test_half_of_a_single_product_counts(call: Call) -> None:
    assert _work(call, (N, N), (N, N)).num_flops == N**3


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.diag(x[0]) @ y,  # a scaling
        lambda x, y: x.tril() @ y,
        lambda x, y: (x @ y).sum(-1),  # x @ y.sum(-1)
        lambda x, y: x @ y @ y,
        lambda x, y: x[:1].expand(N, N) @ y,  # one row
        lambda x, y: torch.ones(N, N) @ y,
        lambda x, y: torch.relu(x + y),
        lambda x, y: torch.matmul(input=x.half(), other=y.half()),
        lambda x, y: (x * 99).to(torch.int32) @ (y * 99).to(torch.int32),
    ],
)
def test_flops_that_algebra_may_save_do_not_count(call: Call) -> None:
    assert _work(call, (N, N), (N, N)).num_flops == 0


def test_the_class_decides_how_fast_a_product_may_be() -> None:
    work = Work(num_bytes=1000, num_flops=10**9)
    strict, half = (
        work.floor_us(PEAKS, precision)
        for precision in (PrecisionClass.STRICT, PrecisionClass.HALF)
    )
    assert strict == pytest.approx(10**9 / (1e6 / 3))
    assert half == pytest.approx(10**9 / 1e6)


# --- ceilings ------------------------------------------------------------------------------------


def test_small_work_is_held_against_the_fastest_level_that_could_hold_it() -> None:
    assert PEAKS.moving_us(1000) == pytest.approx(1000 / 120e3)
    assert PEAKS.moving_us(1 << 20) == pytest.approx((1 << 20) / 120e3)


def test_large_work_may_lie_partly_in_a_fast_level() -> None:
    whole, part = 1 << 24, 1 << 20
    assert PEAKS.moving_us(whole) == pytest.approx(part / 120e3 + (whole - part) / 30e3)


def test_more_work_never_takes_less_time() -> None:
    times = [PEAKS.moving_us(size) for size in range(0, 1 << 25, 1 << 14)]
    assert times == sorted(times)
    assert times[0] == 0


def test_measuring_again_only_raises_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Peaks(((1, 5.0), (2, 5.0)), float32=1.0, half=9.0)
    fast = Peaks(((1, 4.0), (2, 6.0)), float32=2.0, half=8.0)
    found = iter([slow, fast])
    monkeypatch.setattr("cudal1.harness.device.ceilings.measure", lambda device: next(found))
    ceilings = Ceilings("cpu", core=None)
    assert ceilings.peaks() == ceilings.peaks() == slow
    assert ceilings.again() == Peaks(((1, 5.0), (2, 6.0)), float32=2.0, half=9.0)
    assert ceilings.peaks().half == 9.0


@pytest.mark.parametrize("device", DEVICES)
def test_measured_ceilings_are_plausible(device: str) -> None:
    threads = torch.get_num_threads()
    peaks = measure(device, sizes=(1 << 16, 1 << 20))
    assert [size for size, _ in peaks.bandwidth] == [1 << 16, 1 << 20]
    assert all(100 < rate < 1e8 for _, rate in peaks.bandwidth)  # 0.1 GB/s to 100 TB/s
    assert 100 < peaks.float32 < 1e10
    assert 100 < peaks.half < 1e10
    assert torch.get_num_threads() == threads


# --- honest kernels ------------------------------------------------------------------------------


HONEST: dict[str, tuple[Call, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    "relu": (torch.relu, lambda x, out: torch.clamp(x, min=0, out=out)),
    "scale": (lambda x: x * 2.0, lambda x, out: torch.mul(x, 2.0, out=out)),
    "sum": (lambda x: x.sum(-1), lambda x, out: torch.sum(x, -1, out=out)),
    "exp": (torch.exp, lambda x, out: torch.exp(x, out=out)),
}
"""References, each with a call that is faster than any burst: all data is in the cache, the output
exists already, and no other process takes part."""
NUM_AGAIN = 10
CEILINGS = {device: Ceilings(device, core=None) for device in DEVICES}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [16, 128, 512, 1024])
@pytest.mark.parametrize("name", HONEST)
def test_no_honest_kernel_in_the_cache_is_below_the_floor(
    name: str, size: int, device: str
) -> None:
    call, quick = HONEST[name]
    draws = [[x.to(device)] for (x,) in _draws((size, size))]
    work, ceilings = least_work(call, draws, inexactness=0.0), CEILINGS[device]
    assert work.num_bytes >= 0.99 * size * size * 4
    x, out = draws[0][0], call(draws[0][0])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fastest_us = min(_time_us(lambda: quick(x, out)) for _ in range(200))
    finally:
        torch.set_num_threads(threads)
    floor_us = work.floor_us(ceilings.peaks(), PrecisionClass.STRICT)
    for _ in range(NUM_AGAIN):  # as the judge does once: a busy machine only lowers ceilings
        if fastest_us < 0.9 * floor_us:
            floor_us = work.floor_us(ceilings.again(), PrecisionClass.STRICT)
    assert fastest_us >= 0.9 * floor_us


def _time_us(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e6
