"""Settings of stage `rl` and of its rows in the ablation, sections of params.yaml."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import Field, JsonValue, ValidationError

from cudal1.record import Record
from cudal1.selection.contrast import ContrastParams, Sampling
from cudal1.selection.progress import RewardForm
from cudal1.selection.reward import Advantage, SmoothScope
from cudal1.settings.names import ItemName


class RlParams(ContrastParams):
    """Stage `rl` (paper 2.4)."""

    init: ItemName
    """Policy that the stage starts from: the last round of stage 2."""
    num_problems: int = Field(gt=0)
    """Maximum number of training problems to learn on; an epoch shows each of them once."""
    steps: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    group_size: int = Field(ge=2)
    """Number of answers to one prompt, G."""
    learning_rate: float = Field(gt=0)
    beta: float = Field(ge=0)
    """Weight of the KL term (equation 5)."""
    epsilon: float = Field(gt=0, lt=1)
    """Clip range of the probability ratio (equation 5)."""
    updates_per_batch: int = Field(ge=1)
    """Number of optimiser passes over each batch of answers; above 1 the clip acts."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    sampling: Sampling
    """The method of choosing exemplars."""
    plain_share: float = Field(ge=0, le=1)
    """Share of prompts without exemplars, so that the plain skill survives."""
    reward: RewardForm
    """The reward of an answer (the paper: `speedup`)."""
    whole_answers: bool
    """True if an answer to a prompt with exemplars earns nothing without analysis, design and code
    (paper table 3); it needs `policy.prompts: paper`, which asks for them."""
    advantage: Advantage
    """The baseline and scale of a group's rewards (equation 4: `normalized`)."""
    entropy_coef: float = Field(ge=0)
    """Weight of the mean entropy of a token in the objective (the paper: 0)."""
    entropy_target: float | None = Field(gt=0)
    """Nats a token below which TRL raises `entropy_coef` step by step, as in Skywork-OR1 (arXiv
    2505.22312); None keeps it as it is."""
    resamples: int = Field(ge=0)
    """Most times that an answer is sampled again because another of its group equals it; 0 under
    several processes."""
    turns: int = Field(ge=1)
    """Number of answers of a trajectory (the paper: 1). A group is `group_size / turns` of them;
    each later answer is shown the attempts before it, with what became of them (Kevin-32B, arXiv
    2507.11948)."""
    turn_discount: float = Field(ge=0, le=1)
    """Factor by which the reward of the next turn counts for the one before it (Kevin-32B: 0.4)."""
    mask_truncated: bool
    """True if an answer that was cut off trains nothing; its reward still counts in its group's
    mean."""
    smooth_k: float | None = Field(gt=0)
    """The k of equation 6 (paper 3.2: 1.5). Without it rewards are clipped to the range that holds
    the middle 98 % of the latest."""
    smooth_scope: SmoothScope
    """The rewards that equation 6 takes its mean and deviation of."""
    smooth_window: int = Field(gt=1)
    """Number of latest rewards that mean and deviation cover; not under `smooth_scope: group`."""
    smooth_refresh: int = Field(gt=0)
    """Number of batches between refreshes of mean and deviation; not under `smooth_scope:
    group`."""
    smooth_log: bool
    """True if log(1 + reward) is smoothed in place of the reward."""
    checkpoint_every: int = Field(gt=0)
    """Number of steps between checkpoints; an interrupted run loses at most as many."""
    validation_problems: int = Field(ge=0)
    """Number of training problems outside `num_problems` that choose the checkpoint that is kept;
    0 keeps the last step's weights."""
    validation_samples: int = Field(gt=0)
    """Number of answers of each checkpoint to each of them."""
    vllm_server: str | None = Field(pattern=r"^https?://")
    """Address of the vLLM server that samples the answers and is sent the weights before each step
    (docs/training/how-to.md); None: the training processes sample."""
    seed: int

    @property
    def shows_exemplars(self) -> bool:
        """Return whether a prompt of a first turn may show exemplars."""
        return self.sampling is not Sampling.NONE and self.plain_share < 1


RlChanges = dict[str, JsonValue]
"""Settings of `rl` that another stage changes, by name."""


def changed(rl: RlParams, changes: Mapping[str, JsonValue], *, key: str) -> RlParams:
    """Return the settings of `rl` with some of them changed.

    Args:
        rl: section `rl`.
        changes: settings by name.
        key: place of the changes in params.yaml.

    Raises:
        ValueError: a changed setting is unknown or wrong; the message gives its dotted path.
    """
    try:
        return RlParams.model_validate({**rl.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{key}.{place}: {first['msg']}") from error


class AblationParams(Record):
    """Stage `ablation@ROW`: stage `rl` with other settings."""

    rows: dict[ItemName, RlChanges]
    """The settings of `rl` that each row changes, by the name of the row and of its policy."""

    def row(self, name: str, rl: RlParams) -> RlParams:
        """Return the settings of a row.

        Raises:
            ValueError: a changed setting is unknown or wrong.
        """
        return changed(rl, self.rows[name], key=f"ablation.rows.{name}")

    def refuse_names(self, taken: Collection[str]) -> None:
        """Refuse a row that is named like another policy, or that starts elsewhere than stage `rl`.

        Args:
            taken: names of policies that no row may have.

        Raises:
            ValueError: a row that cannot be, with its key.
        """
        for name, changes in self.rows.items():
            key = f"ablation.rows.{name}"
            if name in taken:
                raise ValueError(f"{key}: {name} is a policy already; rename the row")
            if "init" in changes:
                raise ValueError(f"{key}: rows start where rl does; leave init out")
