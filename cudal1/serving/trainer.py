"""Give other people's trainers what they need: prompts, and rewards of answers.

    tasks = KernelTasks("http://127.0.0.1:8088", token)
    tasks.prompt("cudal1/L1/08_silu")
    tasks.rewards(["cudal1/L1/08_silu"], [completion])

A completion that holds no candidate earns 0, and the server is not asked about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cudal1.extract.extract import extract
from cudal1.problem import Problem
from cudal1.selection.reward import speed_reward, success_reward
from cudal1.serving.client import RemoteError, RemoteJudge
from cudal1.serving.messages import Asks, Submission

PROMPT = """Write a faster version of this PyTorch module. It must be called ModelNew, take the \
same arguments, and return the same outputs. Answer with one block of Python code that holds the \
whole module and its imports.

```python
{source}
```
"""


class Scored(NamedTuple):
    """The reward of a completion, and what its author may be told."""

    reward: float
    said: str


class KernelTasks:
    """The problems of a server as tasks for a model; threads may share it.

    Args:
        url: the server's address.
        token: the client's token.
        asks: the questions about each candidate. Without timing a success earns 1, else its
            certified speedup.
    """

    def __init__(self, url: str, token: str, asks: Asks | None = None) -> None:
        self.judge = RemoteJudge(url, token)
        self._asks = asks or Asks()
        self._problems: dict[str, Problem] = {}

    def keys(self, split: str = "train") -> list[str]:
        """Return the keys of the problems of a split."""
        return [each.key for each in self.judge.problems() if each.split == split]

    def prompt(self, key: str) -> str:
        """Return the prompt of a problem.

        Raises:
            RemoteError: the server has no such problem, or does not answer.
        """
        if key not in self._problems:
            ids = {each.key: each.id for each in self.judge.problems()}
            if key not in ids:
                raise RemoteError(f"{key}: the server has no such problem; keys() lists them")
            self._problems[key] = self.judge.problem(ids[key])
        return PROMPT.format(source=self._problems[key].source)

    def rewards(self, keys: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return the reward of each completion for the problem of its key."""
        return [each.reward for each in self.scored(keys, completions)]

    def scored(self, keys: Sequence[str], completions: Sequence[str]) -> list[Scored]:
        """Return the reward of each completion, with its reason; all are judged together.

        Raises:
            RemoteError: the server refuses a submission, or does not answer.
        """
        found = [extract(text) for text in completions]
        given = {
            number: Submission(problem=key, source=each.source, **dict(self._asks))
            for number, (key, each) in enumerate(zip(keys, found, strict=True))
            if each.source is not None
        }
        answers = self.judge.judge_many(list(given.values()))
        judged = dict(zip(given, answers, strict=True))
        scored: list[Scored] = []
        for number, each in enumerate(found):
            answer = judged.get(number)
            verdict = None if answer is None else answer.verdict
            earn = speed_reward if self._asks.timing else success_reward
            if answer is None:
                said = each.reason or "no candidate"
            elif verdict is None:
                said = f"not judged: {answer.reason}"
            else:
                said = verdict.reason or verdict.status.value
            scored.append(Scored(earn(verdict), said))
        return scored
