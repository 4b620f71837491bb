"""Stand-ins for OpenEnv and verifiers, which are no requirements, for the tests of their examples.

They have the names that the examples use, and nothing of what the frameworks do. docs/serve.md has
the versions with which the examples were tried.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")


class Environment(Generic[First, Second, Third]):
    """OpenEnv's environment."""


class Action(BaseModel):
    """OpenEnv's action."""

    model_config = ConfigDict(extra="forbid")


class Observation(BaseModel):
    """OpenEnv's observation."""

    model_config = ConfigDict(extra="forbid")
    done: bool = False
    reward: float | None = None


class State(BaseModel):
    """OpenEnv's state."""

    episode_id: str | None = None
    step_count: int = 0


class TaskData(BaseModel):
    """The data of a task of verifiers."""

    name: str
    prompt: str


class Task(Generic[First]):
    """A task of verifiers."""

    def __init__(self, data: Any, config: object) -> None:
        self.data = data
        self.config = config


class TasksetConfig(BaseModel):
    """The settings of a taskset of verifiers."""

    task: str = ""


class Taskset(Generic[First, Second]):
    """A taskset of verifiers."""

    def __init__(self, config: TasksetConfig) -> None:
        self.config: Any = config


def reward(weight: float) -> Callable[[Any], Any]:
    """Mark a task's method as a reward."""
    return lambda method: method


def modules() -> dict[str, ModuleType]:
    """Return the stand-ins by the names of the modules for which they stand."""
    held: dict[str, dict[str, object]] = {
        "openenv": {},
        "openenv.core": {},
        "openenv.core.env_server": {},
        "openenv.core.env_server.http_server": {"create_fastapi_app": lambda *_, **__: None},
        "openenv.core.env_server.interfaces": {"Environment": Environment},
        "openenv.core.env_server.types": {
            "Action": Action,
            "Observation": Observation,
            "State": State,
        },
        "verifiers": {},
        "verifiers.v1": {
            "Task": Task,
            "TaskData": TaskData,
            "Taskset": Taskset,
            "TasksetConfig": TasksetConfig,
            "Trace": object,
            "reward": reward,
        },
    }
    found = {name: ModuleType(name) for name in held}
    for name, content in held.items():
        vars(found[name]).update(content)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(found[parent], own, found[name])
    return found
