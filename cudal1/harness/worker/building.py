"""Run a candidate for what it compiles, in a worker that has no device and is not judged.

Its source is imported, its module constructed as it will be where it is judged, and called once:
for a GPU in a process that pretends to have one (`pretended`), and in another that does not, where
it is not called. What compilers left is handed over; what else comes of it says nothing, but for
what a compiler says of a line of the source while that is imported or its module constructed.

Threat: as in `shim`. The problem's source runs beside the candidate's here, for its arguments; that
is public, and this process is no judge's.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import torch

from cudal1.harness import wire
from cudal1.harness.seeding import seed_others
from cudal1.harness.wire import Job, State
from cudal1.harness.worker import builds
from cudal1.harness.worker.loading import imported
from cudal1.harness.worker.pretended import a_gpu
from cudal1.harness.worker.words import report

PROBLEM = "problem"
"""What the problem's source is imported as."""
NOT_BUILT = 1
"""How a child exits whose extension was not built for a reason that is not the source's own."""


def build(job: Job, home: str, source: bytes, control: memoryview) -> bool:
    """Compile what the source compiles; whether it is worth handing over.

    Each try is a child's: what ends it, such as a kernel without a GPU, leaves what it compiled.
    """
    os.environ["MAX_JOBS"] = builds.MAX_JOBS
    if job.builds_for == "cuda":
        _in_child(home, lambda: _pretend(job, source))
    return _in_child(home, lambda: _speak(job, source, control))


def _pretend(job: Job, source: bytes) -> int:
    """Try it where a GPU seems to be; how the child exits."""
    with a_gpu():
        _try(job, source, is_called=True, on_gpu=True)
    return 0


def _speak(job: Job, source: bytes, control: memoryview) -> int:
    """Try it as it is, and say what a compiler says of the source; how the child exits."""
    error = _try(job, source, is_called=job.builds_for != "cuda", on_gpu=False)
    if error is None:
        return 0
    if said := builds.complaint(error, source):
        report(control, control[: wire.TEXT_OFFSET].cast("Q"), State.BUILD_FAILED, said)
    return NOT_BUILT if builds.has_failed(error) else 0


def _try(job: Job, source: bytes, *, is_called: bool, on_gpu: bool) -> BaseException | None:
    """Import, construct and call; what the first two raised.

    A source may raise anything at all, SystemExit too, and what it compiled before is worth keeping
    all the same.
    """
    try:
        namespace = imported(source)
    except BaseException as error:  # noqa: BLE001 -- a source may raise anything, SystemExit too
        return error
    try:
        problem = imported(job.problem.encode(), PROBLEM)
        arguments = ast.literal_eval(repr([*problem.get_init_inputs()]))
    except BaseException:  # noqa: BLE001 -- a problem's source, which the judge will refuse
        return None
    try:
        torch.manual_seed(job.seed)
        seed_others(job.seed)
        module = namespace.ModelNew(*arguments)
    except BaseException as error:  # noqa: BLE001 -- a source may raise anything, SystemExit too
        return error
    if is_called:
        with suppress(BaseException):  # what was compiled before is kept all the same
            _call(job, module, problem, on_gpu=on_gpu)
    return None


def _call(job: Job, module: torch.nn.Module, problem: ModuleType, *, on_gpu: bool) -> None:
    if job.trains is not None:
        module.train(job.trains)
    inputs = [*problem.get_inputs()]
    if on_gpu:
        module = module.to("cuda")
        inputs = [each.to("cuda") if isinstance(each, torch.Tensor) else each for each in inputs]
    with torch.no_grad():
        module(*inputs)


def _in_child(home: str, run: Callable[[], int]) -> bool:
    """Run it in a child; whether nothing but the source has ended what it compiled."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            code = run()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    builds.unlock(home)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) != signal.SIGKILL  # the kernel, for want of memory
    return os.WEXITSTATUS(status) != NOT_BUILT
