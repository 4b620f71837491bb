"""Compile what a candidate compiles, in a worker that has no device and is not judged.

The worker imports the candidate's source and constructs its module as the judged worker will. Then
it calls the module once. A build for a GPU runs in two child processes. The first pretends to have
a GPU (`pretended`) and calls the module. The second does not pretend and does not call. The files
that compilers left are handed over. All else is ignored, with one exception. A child that does not
pretend reports what a compiler says of a line of the source during the import or the construction.

Threat: as in `shim`. The problem's source runs here beside the candidate's, to supply arguments.
The problem's source is public, and this process is not a judge's.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import torch

from cudal1.harness.shared import wire
from cudal1.harness.shared.packed_source import unpacked
from cudal1.harness.shared.seeding import seed_others
from cudal1.harness.shared.wire import Job, State
from cudal1.harness.worker import builds
from cudal1.harness.worker.loading import imported
from cudal1.harness.worker.pretended import a_gpu
from cudal1.harness.worker.words import report

PROBLEM = "problem"
"""Module name under which the problem's source is imported."""
NOT_BUILT = 1
"""Exit status of a child: an extension was not built, for a reason that is not the source's own."""


def build(job: Job, home: str, source: bytes, control: memoryview) -> bool:
    """Compile what the source compiles; return whether the result is worth handing over.

    Each try runs in a child process. A try that ends early, such as at a kernel without a GPU,
    leaves what it compiled before.
    """
    os.environ["MAX_JOBS"] = builds.MAX_JOBS
    if job.builds_for == "cuda":
        _in_child(home, lambda: _pretend(job, source))
    return _in_child(home, lambda: _speak(job, source, control))


def _pretend(job: Job, source: bytes) -> int:
    """Try the source where a GPU seems to be; return the child's exit status."""
    with a_gpu():
        _try(job, source, is_called=True, on_gpu=True)
    return 0


def _speak(job: Job, source: bytes, control: memoryview) -> int:
    """Try the source as it is and report a compiler's complaint; return the child's exit status."""
    error = _try(job, source, is_called=job.builds_for != "cuda", on_gpu=False)
    if error is None:
        return 0
    if said := builds.complaint(error, _text(source)):
        report(control, control[: wire.TEXT_OFFSET].cast("Q"), State.BUILD_FAILED, said)
    return NOT_BUILT if builds.has_failed(error) else 0


def _text(source: bytes) -> str:
    """Return all files of a packed source, one after another."""
    main, others = unpacked(source)
    return "\n".join([main, *others.values()])


def _try(job: Job, source: bytes, *, is_called: bool, on_gpu: bool) -> BaseException | None:
    """Import the source, construct its module and call it; return what the first two raised.

    A source may raise anything, SystemExit too. What it compiled before that is worth keeping.
    """
    try:
        namespace = imported(source)
    except BaseException as error:  # noqa: BLE001 -- a source may raise anything, SystemExit too
        return error
    try:
        problem = imported(job.problem, PROBLEM)
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
    """Run a function in a child; return whether only the source can have stopped it.

    The result is False after `NOT_BUILT`, and after SIGKILL.
    """
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
        return os.WTERMSIG(status) != signal.SIGKILL  # the kernel is short of memory
    return os.WEXITSTATUS(status) != NOT_BUILT
