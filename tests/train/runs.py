"""Run both trainers shortly on a tiny policy, for the tests of scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudal1.selection.reward import Advantage
from cudal1.settings.scale import ScaleParams
from cudal1.train.grpo import GrpoSettings, train_grpo
from cudal1.train.sft import Pair, SftSettings, train_sft

ONE: dict[str, Any] = {
    "processes": 1,
    "sharded": False,
    "micro_batch": None,
    "dtype": "float32",
    "checkpointing": False,
    "adapter": None,
}
PROBLEMS = ("first", "second", "third", "fourth")
GRPO: dict[str, Any] = {
    "steps": 2,
    "prompts_per_step": 4,
    "group_size": 4,
    "learning_rate": 0.01,
    "beta": 0.1,
    "epsilon": 0.2,
    "advantage": Advantage.NORMALIZED,
    "entropy_coef": 0.0,
    "entropy_target": None,
    "resamples": 0,
    "turns": 1,
    "mask_truncated": False,
    "updates_per_batch": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "max_new_tokens": 12,
    "checkpoint_every": 1,
    "keeps_checkpoints": False,
    "seed": 5,
    "vllm_server": None,
}
SFT: dict[str, Any] = {
    "steps": 10,
    "batch_size": 4,
    "loss": "nll",
    "learning_rate": 0.01,
    "warmup_steps": 1,
    "max_tokens": 128,
    "checkpoint_every": 5,
    "seed": 3,
}


def scale(**changed: Any) -> ScaleParams:
    """Return the settings of one process with all weights, with the given changes."""
    return ScaleParams.model_validate({**ONE, **changed})


class World:
    """A world that rewards letters, records its calls, and raises from a given step on."""

    judges_meanwhile = False

    def __init__(self, *, refuses: BaseException | None = None, at: int = 0) -> None:
        self.built: list[tuple[str, int]] = []
        self.scored: list[tuple[list[str], int]] = []
        self.refined: list[tuple[list[int], int]] = []
        self.follows: list[tuple[list[int], int]] = []
        self.restored: dict[str, Any] | None = None
        self._refuses = refuses
        self._at = at

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        self.built.append((problem_id, step))
        return [{"role": "user", "content": f"{problem_id} at {step}, prompt {len(self.built)}"}]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None: ...

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        self.refined.append((list(numbers), step))
        return [[{"role": "user", "content": f"after answer {number}"}] for number in numbers]

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        assert len(follows) == len(texts)
        self.follows.append((list(follows), step))

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        if self._refuses is not None and step >= self._at:
            raise self._refuses
        self.scored.append((list(problem_ids), step))
        return [text.count("a") / max(1, len(text)) for text in texts]

    def state(self) -> dict[str, Any]:
        return {"num_scored": len(self.scored)}

    def restore(self, state: dict[str, Any]) -> None:
        self.restored = state


def grpo(policy: Path, folder: Path, world: World, **changed: Any) -> list[tuple[int, Any]]:
    """Train over two processes; return the logged numbers."""
    logs: list[tuple[int, Any]] = []
    settings = {**GRPO, "scale": scale(processes=2, micro_batch=4), **changed}
    train_grpo(
        policy,
        folder / "out",
        PROBLEMS,
        world,
        GrpoSettings(**settings),
        work=folder / "work",
        on_log=lambda step, values: logs.append((step, values)),
    )
    return logs


def sft(
    policy: Path, folder: Path, pairs: list[Pair], **changed: Any
) -> tuple[int, dict[int, float]]:
    """Train; return the number of pairs that were too long, and the loss by step."""
    losses: dict[int, float] = {}

    def on_log(step: int, values: Mapping[str, float]) -> None:
        if "loss" in values:
            assert step not in losses
            losses[step] = values["loss"]

    num_long = train_sft(
        policy,
        folder / "out",
        pairs,
        SftSettings(**{**SFT, "scale": scale(), **changed}),
        work=folder / "work",
        on_log=on_log,
    )
    return num_long, losses
