"""verifiers: the judge as a taskset, one task for each problem of the server.

    CUDAL1_URL=… CUDAL1_TOKEN=… PYTHONPATH=examples/serving vf-eval cudal1-kernels \
        --env.agent.harness.id null --env.agent.runtime.type subprocess --push False -n 5

Without the last two settings vf-eval runs on Prime Intellect's machines, and uploads the results.
"""

import asyncio
import os
from functools import cache

import verifiers.v1 as vf
from cudal1.serving.messages import Asks
from cudal1.serving.trainer import KernelTasks

__all__ = ["KernelsTaskset"]


@cache
def kernel_tasks(timing: bool) -> KernelTasks:
    """Return the tasks of the server that the environment names."""
    return KernelTasks(os.environ["CUDAL1_URL"], os.environ["CUDAL1_TOKEN"], Asks(timing=timing))


class KernelData(vf.TaskData):
    """A problem, by its key."""

    problem: str
    timing: bool


class KernelTask(vf.Task[KernelData]):
    """A problem, with the judge's reward."""

    @property
    def key(self) -> str:
        """Return the problem's key, which outlives the order of the problems."""
        return self.data.problem

    @vf.reward(weight=1.0)
    async def certified_speedup(self, trace: vf.Trace) -> float:
        """Return the certified speedup of a success, otherwise 0."""
        tasks = kernel_tasks(self.data.timing)
        (scored,) = await asyncio.to_thread(
            tasks.scored, [self.data.problem], [trace.last_reply or ""]
        )
        return scored.reward


class KernelsConfig(vf.TasksetConfig):
    """The problems, and what is asked of a candidate."""

    split: str = "train"
    timing: bool = True


class KernelsTaskset(vf.Taskset[KernelTask, KernelsConfig]):
    """The problems of a split."""

    def load(self) -> list[KernelTask]:
        """Return a task for each problem."""
        tasks, timing = kernel_tasks(self.config.timing), self.config.timing
        return [
            KernelTask(
                KernelData(name=key, problem=key, prompt=tasks.prompt(key), timing=timing),
                self.config.task,
            )
            for key in tasks.keys(self.config.split)
        ]
