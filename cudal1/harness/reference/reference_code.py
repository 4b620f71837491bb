"""Surround a reference's code wherever the judge runs it: it may raise anything.

Whatever it raises costs only its own problem and becomes one line that names the problem. The
exception itself is not kept. Its class may be impossible to pickle, its text may be impossible to
make, and its frames hold tensors.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from cudal1.errors import CudaL1Error, SuiteError, describe
from cudal1.harness.device.shortage import raise_shortage
from cudal1.problem import Problem

if TYPE_CHECKING:
    import torch

CALL_LIMIT_S = 60.0
"""Seconds that a call into a reference may take where `end_with_a_hang` was called."""
_limit_s = 0.0


def end_with_a_hang(limit_s: float = CALL_LIMIT_S) -> None:
    """Have this process end when a reference does not return, whatever the reference is doing.

    For processes that run one problem: SIGALRM ends them, even inside code that is no Python.
    """
    global _limit_s
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _limit_s = limit_s


@contextmanager
def in_time() -> Iterator[None]:
    """Limit the time of a call into a reference that `ReferenceCode` does not surround.

    The limit is the same.
    """
    if _limit_s:
        signal.setitimer(signal.ITIMER_REAL, _limit_s)
    try:
        yield
    finally:
        if _limit_s:
            signal.setitimer(signal.ITIMER_REAL, 0)


class RefusalError(SuiteError):
    """A reference cannot do what was asked of it; it may on another kind of input."""


class ReferenceCode:
    """A context for each call into one problem's reference.

    A reference may also switch settings of PyTorch, or have warnings raised as errors. Such
    settings hold for all of the reference's own calls, and for no other code of this process.

    Raises:
        RefusalError: the reference raised an exception, SystemExit among them.
        OutOfMemoryError: PyTorch's; the reference found no memory.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._theirs = self._ours = _Settings.now()
        self._filters: tuple[object, ...] = ()
        self._their_filters: tuple[object, ...] | None = None
        """Filters of warnings, once the reference has changed any."""
        self._is_grad_enabled = True

    def __enter__(self) -> None:
        import torch

        self._ours = _Settings.now()
        self._filters, self._is_grad_enabled = tuple(warnings.filters), torch.is_grad_enabled()
        if self._theirs != self._ours:
            self._theirs.apply()
        if self._their_filters is not None:
            _filter_warnings(self._their_filters)
        if _limit_s:
            signal.setitimer(signal.ITIMER_REAL, _limit_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import torch

        if _limit_s:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._theirs = _Settings.now()
        if self._theirs != self._ours:
            self._ours.apply()
        if torch.is_grad_enabled() != self._is_grad_enabled:
            torch.set_grad_enabled(self._is_grad_enabled)
        if tuple(warnings.filters) != self._filters:
            self._their_filters = tuple(warnings.filters)
            _filter_warnings(self._filters)
        if error is None or isinstance(error, KeyboardInterrupt | CudaL1Error):
            return
        raise_shortage(error)
        raise self.refusal(f"its reference raises {describe(error)}") from None

    def refusal(self, said: str) -> RefusalError:
        """Return the error to raise; it names the problem."""
        return RefusalError(f"{self._problem.key}: {said}")


class _Settings(NamedTuple):
    """Settings that decide what PyTorch's operators compute."""

    dtype: torch.dtype
    deterministic: int

    @classmethod
    def now(cls) -> _Settings:
        """Return the settings in force."""
        import torch

        return cls(torch.get_default_dtype(), torch.get_deterministic_debug_mode())

    def apply(self) -> None:
        """Put these settings in force."""
        import torch

        torch.set_default_dtype(self.dtype)
        torch.set_deterministic_debug_mode(self.deterministic)


def _filter_warnings(filters: tuple[object, ...]) -> None:
    warnings.filters[:] = filters  # pyright: ignore[reportIndexIssue] -- it is a list


@contextmanager
def kept_as_it_is(module: torch.nn.Module) -> Iterator[None]:
    """Undo what calls within the block set, replace or delete on a module and its submodules.

    A call that is interfered with may store values that no other call should meet. For example, old
    `weight_norm` has a hook that computes a weight and sets it, as a parameter if it gets one.
    """
    kept = [(each, vars(each).copy()) for each in module.modules()]
    tables = [
        (table, table.copy())
        for each, _ in kept
        for table in (each._parameters, each._buffers, each._modules)
        if isinstance(table, dict)  # a scripted module's are views that cannot be changed
    ]
    try:
        yield
    finally:
        for each, before in kept:
            vars(each).clear()
            vars(each).update(before)
        for table, before in tables:
            table.clear()
            table.update(before)  # pyright: ignore[reportArgumentType, reportCallIssue] -- its own
