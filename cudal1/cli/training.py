"""`cudal1 training`: GPU memory that training takes, and settings for larger policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.errors import CudaL1Error

if TYPE_CHECKING:
    from cudal1.settings.params import Params
    from cudal1.train.memory import Architecture, Estimate, Work

AsJson = Annotated[bool, typer.Option("--json", help="For machines; sizes in bytes")]
ParamsFile = Annotated[Path, typer.Option("--params", help="The file of settings")]
GIB = 1 << 30

training = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What training takes of a GPU's memory, and ready settings for larger policies.",
)


@training.command()
def memory(
    params: ParamsFile = Path("params.yaml"),
    profile: Annotated[str | None, typer.Option(help="With this profile's settings")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each training stage holds on each GPU, in GiB, by what it is for.

    What stage rl could not train is refused, where the policy is already on this machine.

    Example: cudal1 training memory --profile coder-7b
    """
    from cudal1.train.memory import estimate

    try:
        settings = _settings(params, profile)
        _refuse_untrainable(settings)
        model = _architecture(settings)
    except CudaL1Error as error:
        fail(str(error))
    found = {
        stage: estimate(model, settings.scale, work) for stage, work in _works(settings).items()
    }
    if as_json:
        answer_json(
            {
                "num_parameters": model.num_parameters,
                "processes": settings.scale.processes,
                "stages": {
                    name: {**each.parts(), "peak": each.peak} for name, each in found.items()
                },
            }
        )
        return
    answer(
        f"{settings.policy.source}: {model.num_parameters:,} parameters; "
        f"GiB on each of {settings.scale.processes}"
    )
    for line in _table(found):
        answer(line)


@training.command()
def use(
    profile: Annotated[str, typer.Argument(help="A profile for training, such as coder-7b")],
    params: ParamsFile = Path("params.yaml"),
    as_json: AsJson = False,
) -> None:
    """Put a profile's settings into params.yaml; all others stay as they are.

    Example: cudal1 training use coder-7b
    """
    from cudal1.cli.options.params_file import change, read
    from cudal1.settings import profiles
    from cudal1.settings.profiles import TrainingProfile
    from cudal1.settings.settings_file import put_over

    try:
        _settings(params, profile)
        ready = read(profiles.path_of(profile, TrainingProfile))["params"]  # numbers as written
        change(params, lambda content: put_over(content, ready))
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json({"params": str(params), "changed": ready})
        return
    answer(f"{params}: now with {profile}; what it takes: cudal1 training memory")


def _settings(params: Path, profile: str | None) -> Params:
    from cudal1.settings import profiles
    from cudal1.settings.params import Params
    from cudal1.settings.profiles import TrainingProfile
    from cudal1.settings.settings_file import read_settings

    over = None if profile is None else profiles.load(profile, TrainingProfile).params
    return read_settings(params, Params, remedy="run this in the project's folder", over=over)


def _refuse_untrainable(settings: Params) -> None:
    """Refuse a policy that stage `rl` could not train; stage `policy` looks at one of the hub."""
    from cudal1.errors import ConfigError
    from cudal1.train.policy import local_folder
    from cudal1.train.trainable import Asked, faults

    folder = local_folder(settings.policy.source)
    reinforced = {**settings.reinforced(), "challenger": settings.nightly_rl()}
    if folder is not None and (found := faults(folder, settings, reinforced, Asked())):
        raise ConfigError(". ".join(found))


def _architecture(settings: Params) -> Architecture:
    """Return the architecture of the base policy; a profile's is known without its weights."""
    from cudal1.settings import profiles
    from cudal1.settings.profiles import TrainingProfile
    from cudal1.train.memory import architecture_of
    from cudal1.train.policy import config_of

    source = settings.policy.source
    for name in profiles.names(TrainingProfile):
        ready = profiles.load(name, TrainingProfile)
        if ready.params["policy"]["source"] == source:
            return architecture_of(config_of(ready.architecture))
    return architecture_of(config_of(source, revision=settings.policy.revision))


def _works(settings: Params) -> dict[str, Work]:
    """Return the most that each stage computes."""
    from cudal1.train.memory import Work

    supervised = {
        name: Work(
            rows=section.batch_size,
            unit=1,
            tokens=section.max_tokens,
            samples=False,
            has_reference=False,
        )
        for name, section in (
            ("sft", settings.sft),
            ("selfsup", settings.selfsup),
            ("tuned", settings.tuned),
        )
    }
    reinforced = {
        name: Work(
            rows=rl.prompts_per_step * rl.group_size,
            unit=rl.group_size,
            tokens=settings.max_contrast_tokens(rl) + settings.policy.max_new_tokens,
            samples=rl.vllm_server is None,
            has_reference=rl.beta > 0,
            turns=rl.turns,
        )
        for name, rl in (("rl", settings.rl), ("challenger", settings.nightly_rl()))
    }
    return supervised | reinforced


def _table(found: dict[str, Estimate]) -> list[str]:
    parts = {stage: {**each.parts(), "peak": each.peak} for stage, each in found.items()}
    lines = [" " * 12 + "".join(f"{stage:>12}" for stage in parts)]
    for name in next(iter(parts.values())):
        numbers = "".join(f"{each[name] / GIB:12.2f}" for each in parts.values())
        lines.append(f"{name:<12}{numbers}")
    return lines
