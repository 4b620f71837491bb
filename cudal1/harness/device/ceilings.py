"""Measure the most that a device can move and compute, on the device and not from a data sheet.

Threat: a ceiling that is too low makes a floor too high, which turns honest candidates away. So the
best of several kernels and of many tries counts. A busy machine can only make a ceiling look lower,
so `Ceilings.again` measures once more before a candidate is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cudal1.protocol import PrecisionClass

SIZES = {
    "cpu": tuple(1 << power for power in range(14, 27)),
    "cuda": tuple(1 << power for power in range(16, 29)),
}
"""Bytes that a kernel touches: up to 64 MiB on a CPU, up to 256 MiB on a GPU. Each level of cache
shows at its own size. The last rate, which is not slower, stands for more bytes than that."""
SLACK = 0.5
"""Share of a number of bytes that a measured size must reach so that its rate may stand for them. A
size stands for numbers up to twice as large."""
MATRIX_SIZE = {"cpu": 512, "cuda": 8192}
SPLIT = 3
"""Products in half precision that make one product as exact as float32 needs; two are not
enough."""
BLOCK_S = {"cpu": 1e-4, "cuda": 1e-3}
"""Seconds that a timed block of kernels lasts; in a shorter block the clock itself would count."""
MAX_IN_BLOCK = 1 << 12
"""Maximum number of kernels in a block, whatever the clock says."""
TRY_S = 0.003
MIN_TRIES = 8


@dataclass(frozen=True)
class Peaks:
    """The measured ceilings of one device."""

    bandwidth: tuple[tuple[int, float], ...]
    """Pairs of bytes touched, and bytes per microsecond (read and written) of the best kernel."""
    float32: float
    """Operations per microsecond of a matrix product in float32."""
    half: float
    """Operations per microsecond of a matrix product in bfloat16. That is as fast as float16 where
    there are matrix units."""

    def moving_us(self, num_bytes: int) -> float:
        """Return the least time in which a kernel can touch so many bytes once.

        Some of the bytes may lie in a faster level of the caches, because the judge has just
        written them. That holds on a GPU, too. The share of them that gives the least time is
        assumed.
        """
        rate = self._rate(num_bytes)
        times = [
            size / self._rate(size) + (num_bytes - size) / rate
            for size, _ in self.bandwidth
            if size < num_bytes
        ]
        return min([num_bytes / rate, *times])

    def _rate(self, num_bytes: int) -> float:
        """Return the best rate of this size and larger ones.

        Small kernels are slow for other reasons.
        """
        rates = [rate for size, rate in self.bandwidth if size >= SLACK * num_bytes]
        return max(rates, default=self.bandwidth[-1][1])

    def flops_per_us(self, precision: PrecisionClass) -> float:
        """Return the most operations per microsecond of a correct candidate of this class.

        Lower precision may be as exact when a product is split: a strict product takes at least
        three products of half precision. Half precision has as many bits as TF32, and is faster.
        """
        if precision is PrecisionClass.STRICT:
            return max(self.float32, self.half / SPLIT)
        return max(self.float32, self.half)

    def better(self, other: Peaks) -> Peaks:
        """Return the higher value of each ceiling; both peaks must have the same sizes."""
        pairs = zip(self.bandwidth, other.bandwidth, strict=True)
        return Peaks(
            tuple((size, max(mine, theirs)) for (size, mine), (_, theirs) in pairs),
            max(self.float32, other.float32),
            max(self.half, other.half),
        )


class Ceilings:
    """The peaks of a device, measured on first use by one thread on the workers' core."""

    def __init__(self, device: str, *, core: int | None, known: Peaks | None = None) -> None:
        self._device = device
        self._core = core
        self._peaks = known

    def peaks(self) -> Peaks:
        """Return the known peaks; the first call measures them in a fraction of a second."""
        return self._peaks or self.again()

    def again(self) -> Peaks:
        """Measure once more, and return the peaks; of each ceiling the highest value counts."""
        with _alone(self._core):
            found = measure(self._device)
        self._peaks = found if self._peaks is None else self._peaks.better(found)
        return self._peaks


def measure(device: str, sizes: tuple[int, ...] = ()) -> Peaks:
    """Measure the peaks of a torch device, `cpu` or `cuda:0`, at all `SIZES` or the given ones."""
    import torch

    kind = torch.device(device).type
    sync = torch.cuda.synchronize if kind == "cuda" else _nothing

    def matrix_rate(dtype: torch.dtype) -> float:
        n = MATRIX_SIZE[kind]
        matrix = torch.randn(n, n, device=device).to(dtype)
        out = torch.empty_like(matrix)
        return 2 * n**3 / _fastest_us(lambda: torch.mm(matrix, matrix, out=out), sync, kind)

    def bandwidth(num_bytes: int) -> float:
        one = torch.ones(num_bytes // 4, device=device)
        half, other = one[: len(one) // 2], one[len(one) // 2 :]
        kernels = (lambda: other.copy_(half), lambda: one.sum(), lambda: one.fill_(1.0))
        return num_bytes / min(_fastest_us(kernel, sync, kind) for kernel in kernels)

    with torch.no_grad():
        rates = tuple((size, bandwidth(size)) for size in sizes or SIZES[kind])
        return Peaks(rates, matrix_rate(torch.float32), matrix_rate(torch.bfloat16))


def _fastest_us(kernel: Callable[[], object], sync: Callable[[], object], kind: str) -> float:
    """Return the least time of one kernel in blocks of many; the first one warms the device up."""

    def block_s(count: int) -> float:
        sync()
        started = time.perf_counter()
        for _ in range(count):
            kernel()
        sync()
        return time.perf_counter() - started

    block_s(1)
    count = 1
    # by doubling: one time that a clock gives wrong cannot make a block of a hundred thousand
    while block_s(count) < BLOCK_S[kind] and count < MAX_IN_BLOCK:
        count *= 2
    times: list[float] = []
    until = time.perf_counter() + TRY_S
    while len(times) < MIN_TRIES or time.perf_counter() < until:
        times.append(block_s(count) / count)
    return min(times) * 1e6


@contextmanager
def _alone(core: int | None) -> Iterator[None]:
    """Run one thread on that core, as workers do."""
    import torch

    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def _nothing() -> None:
    """Do nothing: a CPU has no queue of kernels to wait for."""
