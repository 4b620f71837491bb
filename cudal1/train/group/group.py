"""Run training over several processes, with one call as for one process.

The stage keeps its process, with the ledger, the harness and MLflow in it. For the training it
starts a group of processes with `accelerate launch`, and these hold the weights. The first of them
asks the stage for prompts and rewards over a socket and sends it the numbers of each step.

So only `Shared` knows about ranks, and a group that dies takes no ledger with it. The processes may
run in another environment than the stage: vLLM's pins conflict with Prefect's.
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
from cudal1.settings.scale import ScaleParams
from cudal1.train.group.launched import MEMBER, launched
from cudal1.train.group.wire import Address, Switchboard, Wire
from cudal1.train.sampling.server import refuse_unreachable, vllm_python

P = ParamSpec("P")
R = TypeVar("R")

CALLED_BACK = ("environment", "on_log")
"""Parameters that stay with the stage; the group asks for them over the wire."""


@dataclass(frozen=True)
class Job:
    """The input of each process of a group."""

    module: str
    function: str
    arguments: Mapping[str, Any]
    judges_meanwhile: bool
    """The environment's `judges_meanwhile`, if the function has an environment."""
    address: Address


def in_a_group(train: Callable[P, R]) -> Callable[P, R]:
    """Let a training function run over `scale.processes` processes when its settings ask for it.

    Its parameter `settings` has `scale`, and perhaps `vllm_server`. All parameters but
    `CALLED_BACK` can be pickled. Where one process suffices, the function runs in the caller's
    process.
    """

    @functools.wraps(train)
    def called(*given: P.args, **named: P.kwargs) -> R:
        arguments = inspect.signature(train).bind(*given, **named).arguments
        scale: ScaleParams = arguments["settings"].scale
        server: str | None = getattr(arguments["settings"], "vllm_server", None)
        if MEMBER in os.environ or not _needs_a_group(scale, server):
            return train(*given, **named)
        return _run(train, arguments, scale, server)

    return called


def refuse_unready(scale: ScaleParams, server: str | None) -> None:
    """Refuse a training that this machine cannot begin, before anything is paid for.

    Raises:
        ConfigError: too few GPUs, or no environment for vLLM.
        TrainingError: the vLLM server does not answer, or takes no weights.
    """
    training_gpus(scale.processes, _visible_gpus())
    if server is not None:
        refuse_unreachable(server)
        vllm_python()


def training_gpus(processes: int, visible: Sequence[str]) -> list[str]:
    """Return the last of the visible GPUs; verdicts begin with the first GPU, which may stay free.

    Raises:
        ConfigError: there are some, but fewer than processes.
    """
    if visible and len(visible) < processes:
        raise ConfigError(
            f"scale.processes: {processes}, but there are {len(visible)} GPUs; lower it"
        )
    return list(visible[len(visible) - processes :]) if visible else []


def _needs_a_group(scale: ScaleParams, server: str | None) -> bool:
    """Return whether a group is needed; one process must see one GPU, since TRL refuses others."""
    return scale.processes > 1 or server is not None or len(_visible_gpus()) > 1


def _visible_gpus() -> list[str]:
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(index) for index in range(count)]


def _run(
    train: Callable[..., Any], arguments: Mapping[str, Any], scale: ScaleParams, server: str | None
) -> Any:
    """Return the function's result, from the first process of a group."""
    refuse_unready(scale, server)
    gpus = training_gpus(scale.processes, _visible_gpus())
    _release_memory()
    board = Switchboard()
    with TemporaryDirectory(prefix="cudal1-") as folder:
        job = Path(folder) / "job"
        sent = {name: value for name, value in arguments.items() if name not in CALLED_BACK}
        job.touch(mode=0o600)
        job.write_bytes(
            pickle.dumps(
                Job(
                    train.__module__,
                    train.__name__,
                    sent,
                    "environment" in arguments and arguments["environment"].judges_meanwhile,
                    board.address,
                )
            )
        )
        python = sys.executable if server is None else vllm_python()
        command = _command(python, scale, job)
        called_back = {name: arguments[name] for name in CALLED_BACK if name in arguments}
        with closing(board), launched(command, gpus, mark=folder) as group:
            return _serve(board.accept(lambda: group.poll() is None), called_back)


def _serve(wire: Wire | None, called_back: Mapping[str, Any]) -> Any:
    """Answer the group's questions until it is done.

    An error of a callback is raised here.

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
    # by `start.py`, every environment finds this cudal1 and no other package of the stage's
    member = [START, "cudal1.train.group.member", str(job)]
    if scale.processes == 1:
        return [python, *FLAGS, *member]
    config = Path(__file__).with_name("fsdp.yaml" if scale.sharded else "ddp.yaml")
    return [
        python,
        *FLAGS,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(config),
        "--num_processes",
        str(scale.processes),
        "--main_process_port",
        "0",
        *member,
    ]


def _release_memory() -> None:
    """Free what a sampler of this process has held on a GPU where the group will train."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
