"""OpenEnv: the judge as an environment. An episode is a problem; a step submits a completion.

    CUDAL1_URL=… CUDAL1_TOKEN=… uvicorn openenv_environment:app --port 8000

`reset(key=…)` chooses a problem, or `seed` does. An episode ends after MAX_STEPS steps, or with a
success. CUDAL1_TIMING=0 asks whether candidates are correct, and nothing of their speed. Each
client of this server has sessions of its own; all of them share the judge's token, so let only
those reach it who may use the token.
"""

import os
import random
import uuid

from cudal1.errors import ConfigError
from cudal1.serving.messages import Asks
from cudal1.serving.trainer import KernelTasks
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

MAX_STEPS = 4
MAX_SESSIONS = 64

tasks = KernelTasks(
    os.environ["CUDAL1_URL"],
    os.environ["CUDAL1_TOKEN"],
    Asks(timing=os.environ.get("CUDAL1_TIMING", "1") == "1"),
)


class KernelAction(Action):
    """A completion, in which the candidate is looked for."""

    completion: str


class KernelObservation(Observation):
    """A problem, and what became of the last completion."""

    problem: str
    prompt: str
    said: str = ""


class KernelState(State):
    """The problem of the episode."""

    problem: str = ""


class KernelEnvironment(Environment[KernelAction, KernelObservation, KernelState]):
    """An episode with one problem."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = KernelState()
        self._is_over = True

    def reset(self, seed=None, episode_id=None, key=None, **_):
        """Begin with the named problem, or with one that the seed chooses."""
        key = key or random.Random(seed).choice(tasks.keys())
        prompt = tasks.prompt(key)
        self._state = KernelState(episode_id=episode_id or str(uuid.uuid4()), problem=key)
        self._is_over = False
        return KernelObservation(problem=key, prompt=prompt)

    def step(self, action, timeout_s=None, **_):
        """Have a completion judged."""
        if self._is_over:
            raise ConfigError("no episode is under way; reset begins one")
        key = self._state.problem
        (scored,) = tasks.scored([key], [action.completion])
        self._state.step_count += 1
        self._is_over = scored.reward > 0 or self._state.step_count >= MAX_STEPS
        return KernelObservation(
            problem=key,
            prompt=tasks.prompt(key),
            said=scored.said,
            reward=scored.reward,
            done=self._is_over,
        )

    @property
    def state(self):
        """Return the state of the episode."""
        return self._state


app = create_fastapi_app(
    KernelEnvironment, KernelAction, KernelObservation, max_concurrent_envs=MAX_SESSIONS
)
