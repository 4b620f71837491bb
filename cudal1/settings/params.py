"""params.yaml as records: a section for each stage, and sections that several stages share.

There are no defaults: a setting that is not in the file is invisible to DVC. Secrets are not
parameters (they stay in the environment), nor are facts about the machine.

The module is long because it states the unit and the source of each setting, once.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cudal1.baseline import Baseline, on
from cudal1.problem import DeviceClass, Split
from cudal1.prompts.prompt import PromptStyle
from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.selection.contrast import ContrastParams, Sampling
from cudal1.settings.names import ItemName
from cudal1.settings.provider_settings import ProviderSettings
from cudal1.settings.rl_params import AblationParams, RlChanges, RlParams, changed
from cudal1.settings.scale import ScaleParams
from cudal1.settings.settings_file import read_settings

REVIEWER = "reviewer"
"""The reviewer's name in bills."""
TUNED = "tuned"
OUTCOME_TOKENS = 256
"""Tokens of an attempt beside its code: a frame, and what became of it (`prompts.feedback`)."""
NIGHTLY = ("champion", TUNED, "challenger")
"""Policies of a night."""


class ProblemsParams(Record):
    """Stage `problems`."""

    source: Literal["shipped", "kernelbench", "robust-kbench", "kernelbook"]
    path: str | None
    """Folder of a checkout, or KernelBook's file of rows; None loads the hub dataset."""
    revision: str | None
    """Revision of the hub dataset of KernelBench or KernelBook; None is its newest."""
    levels: tuple[Annotated[int, Field(ge=1, le=4)], ...]
    """Levels of the source's problems; without one there are generated problems alone."""
    split: Literal["published", "none"]
    """KernelBench and robust-kbench: hold out the problems of
    `cudal1/suite/kernelbench_heldout.yaml`, or none."""
    largest_trained: int | None = Field(gt=0)
    """KernelBench: largest constant of a training problem; larger ones are halved until they are
    within it, to keep verdicts short. Held-out problems keep their sizes. None changes nothing."""
    sizes: str | None
    """KernelBench: a YAML file of constants by problem, to fit this device; None keeps the suite's
    own."""
    generated_train: int = Field(ge=0)
    """Number of problems from the procedural generator, to train on."""
    generated_heldout: int = Field(ge=0)
    """Number of problems with a reserved combination of operators: never trained on."""
    generated_operations: tuple[int, int]
    """Least and greatest number of operations of a generated problem, 1 to 4; held-out problems
    have two or more."""
    generated_knobs: int = Field(ge=0, le=2)
    """Number of operations in it with a best form that depends on sizes and device, and has to be
    measured; fewer where they do not fit."""
    generated_seed: int
    max_reference_ms: float = Field(gt=0)
    """Milliseconds of one call above which a reference is rejected, since judging it takes too
    long."""

    @model_validator(mode="after")
    def _has_operations(self) -> Self:
        least, most = self.generated_operations
        if not 1 <= least <= most <= 4:
            raise ValueError(
                f"generated_operations [{least}, {most}]: give the least and the greatest number, "
                "1 to 4"
            )
        return self

    @model_validator(mode="after")
    def _has_problems(self) -> Self:
        if not self.levels and not self.generated_train + self.generated_heldout:
            raise ValueError("levels: names no level, and no problems are generated; name a level")
        return self


class PolicyParams(Record):
    """Stage `policy`, and the settings of policies' prompts everywhere."""

    source: str
    """`embedded`, `smollm2` (from its wheel), a local folder, or a hub id."""
    revision: str | None
    """Revision of a hub id."""
    prompts: PromptStyle
    max_prompt_tokens: int = Field(gt=0)
    """Maximum tokens of a prompt to a policy; problems with longer prompts are left to the
    providers."""
    max_new_tokens: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    """Number of answers sampled at a time."""


class EvaluationParams(Record):
    """The examination of each stage's policy on held-out problems."""

    num_problems: int = Field(gt=0)
    num_samples: int = Field(gt=0)
    """Number of answers to each problem."""
    turns: int = Field(ge=1)
    """Number of answers of a trajectory, as under `rl`: `num_samples / turns` of them. With more
    than 1 the answers are no plain ones, and table 5 compares them all the same."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    seed: int

    @model_validator(mode="after")
    def _has_whole_trajectories(self) -> Self:
        if self.num_samples % self.turns:
            raise ValueError(
                f"num_samples: {self.num_samples} answers are no trajectories of turns: "
                f"{self.turns}; make it a multiple"
            )
        return self


class GenerateParams(Record):
    """Stage `generate`, one instance for each provider."""

    attempts: int = Field(gt=0)
    """Maximum number of answers for each problem and provider (paper 2.2: 20)."""
    successes: int = Field(gt=0)
    """Successes after which a provider is not asked about a problem again (paper 2.2: 2)."""
    seed: int
    prompts: PromptStyle
    providers: dict[ItemName, ProviderSettings] = Field(min_length=1)


class FilterParams(Record):
    """Stage `filter`."""

    keep: int = Field(gt=0)
    """Maximum number of successful candidates for each problem and provider (paper 2.2: 2)."""


class SftLoss(StrEnum):
    """The loss of one token of an answer to learn."""

    NLL = "nll"
    """The token's negative log-likelihood."""
    DFT = "dft"
    """The negative log-likelihood times the token's probability (dynamic fine-tuning, arXiv
    2508.05629). Tokens that the policy would hardly write, as in unfamiliar code, do not outweigh
    the rest."""


class TrainingParams(Record):
    """Settings of supervised training, in stage 1 and in each round of stage 2."""

    steps: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    loss: SftLoss
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    max_tokens: int = Field(gt=0)
    """Maximum tokens of prompt and answer; longer pairs are left out and counted."""
    checkpoint_every: int = Field(gt=0)
    """Number of steps between checkpoints."""
    seed: int


class SftParams(TrainingParams):
    """Stage `sft` (paper 2.2)."""

    reading: float = Field(ge=0)
    """Lessons in reading scores for each pair (`tasks.learning.reading`; the paper: 0)."""


class Round(Record):
    """One round of stage 2."""

    init: ItemName
    """Policy that the round starts from: `sft`, or the round before."""


class SelfsupParams(TrainingParams):
    """Stage `selfsup@ROUND` (paper 2.3)."""

    rounds: dict[ItemName, Round] = Field(min_length=1)
    """Rounds by name; DVC chains them through `init`."""
    reading: float = Field(ge=0)
    """Lessons in reading scores for each pair, as in stage 1."""
    num_problems: int = Field(gt=0)
    """Number of training problems that a round samples answers to."""
    num_samples: int = Field(gt=0)
    """Number of answers to each problem."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)


class MethodKind(StrEnum):
    """A baseline of the paper's table 5, or `refine`."""

    VANILLA = "vanilla"
    """The best of all answers to the plain prompt."""
    EVOLVE = "evolve"
    """Rounds of contrastive prompts that show the method's own successes."""
    REFINE = "refine"
    """Rounds are turns: each answer goes on from its own trajectory's attempts, which its prompt
    shows with their outcomes (Kevin-32B, arXiv 2507.11948)."""


class MethodParams(Record):
    """One method of stage `search`: the way to ask a provider with fixed weights."""

    method: MethodKind
    sampling: Sampling
    """The method of choosing exemplars; `none` for vanilla and refine, and only there."""
    reads: str
    """Path that DVC must have made before, such as the folder of a local policy; without such a
    path, `data/shards/problems`."""
    provider: ProviderSettings

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.method is MethodKind.EVOLVE) == (self.sampling is Sampling.NONE):
            raise ValueError(f"method {self.method} with sampling {self.sampling}")
        path = getattr(self.provider, "path", None)
        if isinstance(path, str) and path.startswith("data/") and self.reads != path:
            raise ValueError(
                f"reads must be {path}, which the provider reads, or DVC will not know"
            )
        return self


class SearchParams(ContrastParams):
    """Stage `search@METHOD`: the settings that all methods share, so that they can be compared."""

    split: Split
    """Split that the problems are taken from."""
    num_problems: int = Field(gt=0)
    """Number of problems, evenly spread over the split; all of it, if it has no more."""
    rounds: int = Field(gt=0)
    """Number of rounds; `evolve` chooses exemplars anew in each, and the first has none to choose
    from. For `refine` it is the number of turns."""
    answers_per_round: int = Field(gt=0)
    """Number of answers to each problem in a round, and of `refine`'s trajectories; `vanilla` is
    given as many in all."""
    prompts: PromptStyle
    seed: int
    methods: dict[ItemName, MethodParams] = Field(min_length=1)


class TransferParams(Record):
    """Stage `transfer@DEVICE`."""

    devices: tuple[ItemName, ...] = Field(min_length=1)
    """Names of devices, under which results are filed; each instance runs only on the device of its
    name."""
    per_problem: int = Field(gt=0)
    """Number of best candidates of each problem that are judged again."""


class ReviewerParams(Record):
    """The reviewer, which every stage that measures speed asks (paper 3.2)."""

    provider: ProviderSettings | None
    """Provider of the reviewer; None: there is no reviewer, and verdicts say so."""
    above: float = Field(gt=1)
    """Certified speedup from which on the reviewer is asked about every success."""
    above_record: float = Field(gt=1)
    """The same as a multiple of the problem's best so far (the paper: a jump of the reward)."""
    when_screened: bool
    """True if the reviewer is asked about a gain with an advisory flag of the screen."""
    spot_share: float = Field(ge=0, le=1)
    """Share of all other gains that the reviewer is asked about, drawn by their ids."""
    num_cases: int = Field(ge=0)
    """Number of confirmed cheats that the reviewer is shown, the most similar ones (the paper:
    3)."""
    attempts: int = Field(gt=0)
    """Number of requests before a reply counts as no answer."""


class LessonsParams(Record):
    """Stage `lessons` of a night: new answers of the champion, and the ledger's best successes."""

    num_problems: int = Field(gt=0)
    """Number of training problems that the champion answers anew."""
    num_samples: int = Field(gt=0)
    """Number of answers to each problem."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    keep: int = Field(gt=0)
    """Number of best successes of each training problem that a challenger learns."""
    seed: int
    """Seed, to which the night's number is added."""


class DuelParams(Record):
    """Stage `duel` of a night: challenger against champion."""

    num_problems: int = Field(gt=0)
    """Maximum number of new held-out problems: the duel ends as soon as it is decided."""
    num_samples: int = Field(gt=0)
    """Number of answers of each policy to each problem."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    max_reward: float = Field(gt=0)
    """Reward as which a larger one counts: a bound on means needs a bounded reward."""
    alpha: float = Field(gt=0, lt=0.5)
    """Probability that a champion is ever replaced by a policy that is no better."""
    seed: int
    """Seed of problems and answers, to which the night's number is added."""


class ReportParams(Record):
    """Stage `report`."""

    title: str
    fast_p: tuple[float, ...] = Field(min_length=1)
    """Thresholds p of fast_p."""
    baselines: tuple[Baseline, ...]
    """Other ways of running each reference that candidates are compared with; eager is always
    one."""


class Params(Record):
    """All sections of params.yaml."""

    device: DeviceClass
    """Class of the device that judges candidates; problems take its sizes."""
    protocol: EvalProtocol
    problems: ProblemsParams
    policy: PolicyParams
    evaluation: EvaluationParams
    generate: GenerateParams
    filter: FilterParams
    scale: ScaleParams
    sft: SftParams
    selfsup: SelfsupParams
    rl: RlParams
    ablation: AblationParams
    search: SearchParams
    transfer: TransferParams
    reviewer: ReviewerParams
    report: ReportParams
    lessons: LessonsParams
    tuned: SftParams
    """Stage `tuned` of a night: supervised training of the champion on the lessons."""
    challenger: RlChanges
    """Stage `challenger` of a night: stage `rl` from there, with some settings changed; the night's
    number is added to its seed."""
    duel: DuelParams

    def max_contrast_tokens(self, rl: RlParams) -> int:
        """Return the most tokens of a prompt of stage `rl`: exemplars are as long as answers.

        So are failures. The prompt of a last turn shows attempts instead of both.
        """
        code, num_shown = self.policy.max_new_tokens, rl.num_exemplars + rl.num_failures
        exemplars = num_shown * code if rl.shows_exemplars else 0
        return self.policy.max_prompt_tokens + max(exemplars, self._attempts_tokens(rl.turns))

    def max_examined_tokens(self) -> int:
        """Return the most tokens of an examination's prompt: of its last turn."""
        return self.policy.max_prompt_tokens + self._attempts_tokens(self.evaluation.turns)

    def _attempts_tokens(self, turns: int) -> int:
        return (turns - 1) * (self.policy.max_new_tokens + OUTCOME_TOKENS)

    def reinforced(self) -> dict[str, RlParams]:
        """Return the settings of stage `rl` and of its rows, by their places in params.yaml.

        Raises:
            ValueError: a setting that a row changes is unknown or wrong.
        """
        rows = {f"ablation.rows.{name}": name for name in self.ablation.rows}
        return {
            "rl": self.rl,
            **{key: self.ablation.row(name, self.rl) for key, name in rows.items()},
        }

    def nightly_rl(self) -> RlParams:
        """Return the settings of stage `challenger` of a night.

        Raises:
            ValueError: a changed setting is unknown or wrong.
        """
        if "init" in self.challenger:
            raise ValueError(f"challenger: it starts from the policy {TUNED}; leave init out")
        return changed(self.rl, {**self.challenger, "init": TUNED}, key="challenger")

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if not self.protocol.timing:
            raise ValueError("protocol.timing must be true: every reward is a measured speedup")
        others = set(on(self.device)) - {Baseline.EAGER}
        if wrong := [each for each in self.report.baselines if each not in others]:
            why = "is always there" if wrong[0] is Baseline.EAGER else "needs a GPU"
            raise ValueError(f"report.baselines: {wrong[0]} {why}; leave it out")
        # one name, one bill: the ledger tells providers apart by it
        named = [*self.generate.providers, *self.search.methods, REVIEWER]
        if twice := [name for name in named if named.count(name) > 1]:
            raise ValueError(
                f"{twice[0]} names two of generate.providers, search.methods and {REVIEWER}: their "
                "bills would be one; rename it"
            )
        self._refuse_what_cannot_be_split()
        policies = {"base", "sft", *self.selfsup.rounds}
        starts = {f"selfsup.rounds.{name}.init": r.init for name, r in self.selfsup.rounds.items()}
        for key, init in {**starts, "rl.init": self.rl.init}.items():
            if init not in policies:
                raise ValueError(f"{key}: no policy {init}; one of {', '.join(sorted(policies))}")
        self.ablation.refuse_names({*policies, "rl", *NIGHTLY})
        for key, rl in {**self.reinforced(), "challenger": self.nightly_rl()}.items():
            self._refuse_wrong_rl(key, rl)
        return self

    def _refuse_wrong_rl(self, key: str, rl: RlParams) -> None:
        """Refuse settings of stage `rl`, or of a row, that contradict those of other sections."""
        if rl.whole_answers and self.policy.prompts is not PromptStyle.PAPER:
            raise ValueError(
                f"{key}.whole_answers: the prompts of style {self.policy.prompts} ask for code "
                "alone; set policy.prompts to paper"
            )
        if rl.group_size % rl.turns:
            raise ValueError(
                f"{key}.group_size: {rl.group_size} answers are no trajectories of {key}.turns: "
                f"{rl.turns}; make it a multiple"
            )
        if rl.num_problems < rl.prompts_per_step:
            raise ValueError(
                f"{key}.num_problems: {rl.num_problems} for {rl.prompts_per_step} prompts a step; "
                f"raise it, or lower {key}.prompts_per_step"
            )
        self._refuse_unsplittable(
            f"{key}.prompts_per_step", rl.prompts_per_step * rl.group_size, unit=rl.group_size
        )

    def _refuse_what_cannot_be_split(self) -> None:
        for name in ("sft", "selfsup", TUNED):
            self._refuse_unsplittable(f"{name}.batch_size", getattr(self, name).batch_size, unit=1)

    def _refuse_unsplittable(self, key: str, rows: int, *, unit: int) -> None:
        try:
            self.scale.passes(rows, unit=unit)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Params:
        """Read and check params.yaml.

        Raises:
            ConfigError: the file is absent or not YAML, or a key is missing, unknown or wrong;
                the message gives its dotted path.
        """
        return read_settings(path, cls, remedy="run this in the project's folder")
