"""params.yaml as records: one section a stage, and what several stages share.

No defaults here: a knob that is not in the file is invisible to DVC. Secrets are not parameters
(they stay in the environment), nor are facts about the machine. Long because every knob says its
unit and source here, once.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from cudal1.baseline import Baseline, on
from cudal1.contrast import ContrastParams, Sampling
from cudal1.problem import DeviceClass, Split
from cudal1.prompt import PromptStyle
from cudal1.protocol import EvalProtocol
from cudal1.provider_settings import ProviderSettings
from cudal1.record import Record
from cudal1.reward import SmoothScope
from cudal1.scale import ScaleParams
from cudal1.settings_file import read_settings

JUDGE = "hack_judge"
"""The adversarial judge's name in bills."""
ITEM_NAME = r"^[a-z0-9][a-z0-9_-]*$"
ItemName = Annotated[str, StringConstraints(pattern=ITEM_NAME)]
"""What DVC, file names and a shell take without quoting."""


class ProblemsParams(Record):
    """Stage `problems`."""

    source: Literal["shipped", "kernelbench"]
    path: str | None
    """KernelBench: a checkout's folder; None loads the hub dataset."""
    revision: str | None
    """KernelBench: the hub dataset's revision; None is its newest."""
    levels: tuple[Annotated[int, Field(ge=1, le=4)], ...] = Field(min_length=1)
    sizes: str | None
    """KernelBench: a YAML file of constants by problem, to fit this device; None keeps its own."""
    generated_train: int = Field(ge=0)
    """Problems from the procedural generator, to train on."""
    generated_heldout: int = Field(ge=0)
    """Problems whose combination of operators is reserved: never trained on."""
    generated_seed: int
    max_reference_ms: float = Field(gt=0)
    """A slower reference is rejected: judging it would take too long."""


class PolicyParams(Record):
    """Stage `policy`, and how policies are prompted everywhere."""

    source: str
    """`embedded`, a local folder, or a hub id."""
    revision: str | None
    """Of a hub id."""
    prompts: PromptStyle
    max_prompt_tokens: int = Field(gt=0)
    """Problems with longer prompts are left to the providers."""
    max_new_tokens: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    """Answers sampled at a time."""


class EvaluationParams(Record):
    """How each stage's policy is examined on held-out problems."""

    num_problems: int = Field(gt=0)
    num_samples: int = Field(gt=0)
    """Answers to each problem."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    seed: int


class GenerateParams(Record):
    """Stage `generate`, one instance for each provider."""

    attempts: int = Field(gt=0)
    """Per problem and provider, at most (paper 2.2: 20)."""
    successes: int = Field(gt=0)
    """After so many a provider is not asked about this problem again (paper 2.2: 2)."""
    seed: int
    prompts: PromptStyle
    providers: dict[ItemName, ProviderSettings] = Field(min_length=1)


class FilterParams(Record):
    """Stage `filter`."""

    keep: int = Field(gt=0)
    """Successful candidates per problem and provider, at most (paper 2.2: 2)."""


class SftLoss(StrEnum):
    """What a token of an answer to learn counts."""

    NLL = "nll"
    """Its negative log-likelihood."""
    DFT = "dft"
    """The same times its probability (dynamic fine-tuning, arXiv 2508.05629): tokens that the
    policy would hardly write, as in code unlike any that it knows, do not drown the rest."""


class TrainingParams(Record):
    """What supervised training needs, in stage 1 and in each round of stage 2."""

    steps: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    loss: SftLoss
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    max_tokens: int = Field(gt=0)
    """Prompt and answer; longer pairs are left out and counted."""
    checkpoint_every: int = Field(gt=0)
    """Steps between checkpoints."""
    seed: int


class SftParams(TrainingParams):
    """Stage `sft` (paper 2.2)."""


class Round(Record):
    """One turn of stage 2."""

    init: ItemName
    """Whose policy it starts from: `sft`, or the round before."""


class SelfsupParams(TrainingParams):
    """Stage `selfsup@ROUND` (paper 2.3)."""

    rounds: dict[ItemName, Round] = Field(min_length=1)
    """By name; DVC chains them through `init`."""
    num_problems: int = Field(gt=0)
    """Training problems sampled from in a round."""
    num_samples: int = Field(gt=0)
    """Answers to each problem."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)


class RlParams(ContrastParams):
    """Stage `rl` (paper 2.4)."""

    init: ItemName
    """Whose policy it starts from: the last round of stage 2."""
    num_problems: int = Field(gt=0)
    """Training problems to learn on, at most; an epoch shows each of them once."""
    steps: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    group_size: int = Field(ge=2)
    """G: answers to one prompt."""
    learning_rate: float = Field(gt=0)
    beta: float = Field(ge=0)
    """Weight of the KL term (equation 5)."""
    epsilon: float = Field(gt=0, lt=1)
    """Clip range of the probability ratio (equation 5)."""
    updates_per_batch: int = Field(ge=1)
    """Optimiser passes over each batch of answers; above 1 the clip acts."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    sampling: Sampling
    """How exemplars are chosen."""
    plain_share: float = Field(ge=0, le=1)
    """Share of prompts without exemplars, so that the plain skill survives."""
    smooth_k: float = Field(gt=0)
    """k of equation 6 (paper 3.2: 1.5)."""
    smooth_scope: SmoothScope
    """Whose rewards the mean and deviation of equation 6 are of."""
    smooth_window: int = Field(gt=1)
    """Latest rewards that mean and deviation cover; not under `smooth_scope: group`."""
    smooth_refresh: int = Field(gt=0)
    """Batches between refreshes of mean and deviation; likewise."""
    smooth_log: bool
    """Smooth log(1 + reward) in place of the reward."""
    checkpoint_every: int = Field(gt=0)
    """Steps between checkpoints; an interrupted run loses at most so many."""
    vllm_server: str | None = Field(pattern=r"^https?://")
    """Who samples the answers: a vLLM server at this address, which is sent the weights before
    each step (docs/training.md); None: the training processes themselves."""
    seed: int


class MethodKind(StrEnum):
    """Baselines of the paper's table 5."""

    VANILLA = "vanilla"
    """The best of all answers to the plain prompt."""
    EVOLVE = "evolve"
    """Rounds of contrastive prompts that show what the method itself has found."""


class MethodParams(Record):
    """One method of stage `search`: how a provider is asked whose weights stay as they are."""

    method: MethodKind
    sampling: Sampling
    """How exemplars are chosen; `none` for vanilla, and only there."""
    reads: str
    """What DVC must have made before, such as the folder of a local policy; where that is nothing,
    `data/shards/problems`."""
    provider: ProviderSettings

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.method is MethodKind.VANILLA) != (self.sampling is Sampling.NONE):
            raise ValueError(f"method {self.method} with sampling {self.sampling}")
        path = getattr(self.provider, "path", None)
        if isinstance(path, str) and path.startswith("data/") and self.reads != path:
            raise ValueError(
                f"reads must be {path}, which the provider reads, or DVC will not know"
            )
        return self


class SearchParams(ContrastParams):
    """Stage `search@METHOD`: what all methods have in common, so that they can be compared."""

    split: Split
    """Whose problems."""
    num_problems: int = Field(gt=0)
    """Evenly spread over the split; all of it, if it has no more."""
    rounds: int = Field(gt=0)
    """`evolve` chooses exemplars anew in each; the first has none to choose from."""
    answers_per_round: int = Field(gt=0)
    """To each problem; `vanilla` is given as many in all."""
    prompts: PromptStyle
    seed: int
    methods: dict[ItemName, MethodParams] = Field(min_length=1)


class TransferParams(Record):
    """Stage `transfer@DEVICE`."""

    devices: tuple[ItemName, ...] = Field(min_length=1)
    """Names under which results are filed; each instance runs only on a device of that name."""
    per_problem: int = Field(gt=0)
    """Best candidates of each problem that are judged again."""


class HackJudgeParams(Record):
    """The adversarial judge, which every stage that measures speed asks (paper 3.2)."""

    provider: ProviderSettings | None
    """Who is asked; None: nobody, and verdicts say so."""
    above: float = Field(gt=1)
    """A certified speedup from which on it is asked about everybody."""
    above_record: float = Field(gt=1)
    """The same as a multiple of the problem's best so far (the paper: a jump of the reward)."""
    when_screened: bool
    """Whether it is asked about a gain with an advisory flag of the static reading."""
    spot_share: float = Field(ge=0, le=1)
    """Share of all other gains that it is asked about, drawn by their ids."""
    num_cases: int = Field(ge=0)
    """Confirmed cheats that it is shown, the most similar ones (the paper: 3)."""
    attempts: int = Field(gt=0)
    """Times that it is asked before what it says counts as no answer."""


class LessonsParams(Record):
    """Stage `lessons` of a night: what the champion finds, and what is best in the ledger."""

    num_problems: int = Field(gt=0)
    """Training problems that the champion answers anew."""
    num_samples: int = Field(gt=0)
    """Answers to each."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    keep: int = Field(gt=0)
    """Best successes of each training problem that a challenger learns."""
    seed: int
    """Plus the night's number."""


class DuelParams(Record):
    """Stage `duel` of a night: challenger against champion."""

    num_problems: int = Field(gt=0)
    """New held-out problems, at most: it ends as soon as it is decided."""
    num_samples: int = Field(gt=0)
    """Answers of each policy to each."""
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    max_reward: float = Field(gt=0)
    """A larger reward counts as this one: a bound on means needs a bounded reward."""
    alpha: float = Field(gt=0, lt=0.5)
    """Probability that a champion is ever replaced by a policy that is no better."""
    seed: int
    """Plus the night's number: of problems and answers."""


class ReportParams(Record):
    """Stage `report`."""

    title: str
    fast_p: tuple[float, ...] = Field(min_length=1)
    """Thresholds p of fast_p."""
    baselines: tuple[Baseline, ...]
    """Other ways of running each reference that candidates are compared with; eager always is."""


class Params(Record):
    """The whole file."""

    device: DeviceClass
    """What candidates are judged on, and whose sizes problems take."""
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
    search: SearchParams
    transfer: TransferParams
    hack_judge: HackJudgeParams
    report: ReportParams
    lessons: LessonsParams
    challenger: TrainingParams
    """Stage `challenger` of a night: supervised training of the champion on the lessons."""
    duel: DuelParams

    @property
    def max_contrast_tokens(self) -> int:
        """Of a prompt of stage `rl`: as many as elsewhere, and exemplars as long as an answer."""
        return self.policy.max_prompt_tokens + self.rl.num_exemplars * self.policy.max_new_tokens

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if not self.protocol.timing:
            raise ValueError("protocol.timing must be true: every reward is a measured speedup")
        others = set(on(self.device)) - {Baseline.EAGER}
        if wrong := [each for each in self.report.baselines if each not in others]:
            why = "is always there" if wrong[0] is Baseline.EAGER else "needs a GPU"
            raise ValueError(f"report.baselines: {wrong[0]} {why}; leave it out")
        # one name, one bill: the ledger tells providers apart by it
        named = [*self.generate.providers, *self.search.methods, JUDGE]
        if twice := [name for name in named if named.count(name) > 1]:
            raise ValueError(
                f"{twice[0]} names two of generate.providers, search.methods and {JUDGE}: their "
                "bills would be one; rename it"
            )
        self._refuse_what_cannot_be_split()
        policies = {"base", "sft", *self.selfsup.rounds}
        starts = {f"selfsup.rounds.{name}.init": r.init for name, r in self.selfsup.rounds.items()}
        for key, init in {**starts, "rl.init": self.rl.init}.items():
            if init not in policies:
                raise ValueError(f"{key}: no policy {init}; one of {', '.join(sorted(policies))}")
        return self

    def _refuse_what_cannot_be_split(self) -> None:
        group = self.rl.group_size
        batches = {
            "sft.batch_size": (self.sft.batch_size, 1),
            "selfsup.batch_size": (self.selfsup.batch_size, 1),
            "challenger.batch_size": (self.challenger.batch_size, 1),
            "rl.prompts_per_step": (self.rl.prompts_per_step * group, group),
        }
        for key, (rows, unit) in batches.items():
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
