"""Training over several processes: one call, as if it were one.

The stage keeps its process, with ledger, harness and MLflow in it. For the training it starts
a group of processes with `accelerate launch`, which hold the weights; the first of them asks the
stage for prompts and rewards over a socket and tells it the numbers of each step. So nothing of
ours knows about ranks but `Shared`, a group that dies takes no ledger with it, and the processes
may run in another environment than the stage: that of vLLM, whose pins conflict with Prefect's.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

from cudal1.errors import ConfigError, TrainingError
from cudal1.processes import FLAGS, START
from cudal1.scale import ScaleParams
from cudal1.train.launched import MEMBER, launched
from cudal1.train.server import refuse_unreachable, vllm_python
from cudal1.train.wire import Address, Switchboard, Wire

P = ParamSpec("P")
R = TypeVar("R")

CALLED_BACK = ("environment", "on_log")
"""Parameters that stay with the stage: what the group knows of them is how to ask."""


@dataclass(frozen=True)
class Job:
    """What each process of a group is given."""

    module: str
    function: str
    arguments: Mapping[str, Any]
    judges_meanwhile: bool
    """As the environment says, if the function has one."""
    address: Address


def in_a_group(train: Callable[P, R]) -> Callable[P, R]:
    """Let a training function run over `scale.processes` processes, when it is asked to.

    It has keyword parameters `scale` and perhaps `vllm_server`; all others but `CALLED_BACK` can be
    pickled. Where one process will do, it is this one.
    """

    @functools.wraps(train)
    def called(*given: P.args, **named: P.kwargs) -> R:
        arguments = inspect.signature(train).bind(*given, **named).arguments
        scale: ScaleParams = arguments["scale"]
        server: str | None = arguments.get("vllm_server")
        if MEMBER in os.environ or not _needs_a_group(scale, server):
            return train(*given, **named)
        return _run(train, arguments, scale, server)

    return called


def refuse_unready(scale: ScaleParams, server: str | None) -> None:
    """Nothing, where training can begin as far as machines go: asked before anything is paid for.

    Raises:
        ConfigError: too few GPUs, or no environment for vLLM.
        TrainingError: the vLLM server does not answer, or takes no weights.
    """
    training_gpus(scale.processes, _visible_gpus())
    if server is not None:
        refuse_unreachable(server)
        vllm_python()


def training_gpus(processes: int, visible: Sequence[str]) -> list[str]:
    """The last of the visible GPUs: verdicts begin with the first one, which may stay free.

    Raises:
        ConfigError: there are some, but fewer than processes.
    """
    if visible and len(visible) < processes:
        raise ConfigError(
            f"scale.processes: {processes}, but there are {len(visible)} GPUs; lower it"
        )
    return list(visible[len(visible) - processes :]) if visible else []


def _needs_a_group(scale: ScaleParams, server: str | None) -> bool:
    """A lone process must see a lone GPU: TRL refuses others."""
    return scale.processes > 1 or server is not None or len(_visible_gpus()) > 1


def _visible_gpus() -> list[str]:
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(index) for index in range(count)]


def _run(
    train: Callable[..., Any], arguments: Mapping[str, Any], scale: ScaleParams, server: str | None
) -> Any:
    """The function's result, from the first process of a group."""
    refuse_unready(scale, server)
    gpus = training_gpus(scale.processes, _visible_gpus())
    _release_memory()
    board = Switchboard()
    with TemporaryDirectory(prefix="cudal1-") as folder:
        job = Path(folder) / "job"
        sent = {name: value for name, value in arguments.items() if name not in CALLED_BACK}
        job.touch(mode=0o600)
        job.write_bytes(pickle.dumps(Job(
            train.__module__, train.__name__, sent,
            "environment" in arguments and arguments["environment"].judges_meanwhile,
            board.address,
        )))  # fmt: skip
        python = sys.executable if server is None else vllm_python()
        command = _command(python, scale, job)
        called_back = {name: arguments[name] for name in CALLED_BACK if name in arguments}
        with (
            closing(board),
            launched(command, gpus, mark=folder) as group,
        ):
            return _serve(board.accept(lambda: group.poll() is None), called_back)


def _serve(wire: Wire | None, called_back: Mapping[str, Any]) -> Any:
    """Answer the group's questions until it is done.

    What a callback raises, this raises.

    Raises:
        TrainingError: the group failed.
    """
    while wire is not None:
        try:
            heard = wire.receive()
        except (EOFError, ConnectionError):
            break
        match heard:
            case ("call", str(name), str(method), arguments):
                target = called_back[name]
                asked = target if method == "__call__" else getattr(target, method)
                answer = asked(*arguments)
                try:
                    wire.send(answer)
                except ConnectionError:
                    break
            case ("failed", str(line)):
                raise TrainingError(line)
            case ("done", result):
                return result
    raise TrainingError("the training processes ended before they were done; see above")


def _command(python: str, scale: ScaleParams, job: Path) -> list[str]:
    # by `start.py`, every environment finds this cudal1 and nothing else of ours
    member = [START, "cudal1.train.member", str(job)]
    if scale.processes == 1:
        return [python, *FLAGS, *member]
    config = Path(__file__).with_name("fsdp.yaml" if scale.sharded else "ddp.yaml")
    return [
        python, *FLAGS, "-m", "accelerate.commands.launch", "--config_file", str(config),
        "--num_processes", str(scale.processes), "--main_process_port", "0", *member,
    ]  # fmt: skip


def _release_memory() -> None:
    """Give back what a sampler of this process has held on a GPU where the group will train."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
