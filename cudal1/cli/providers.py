"""`cudal1 providers`: the providers of candidates, and ready entries for more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.errors import CudaL1Error

if TYPE_CHECKING:
    from cudal1.settings.provider_settings import ProviderSettings

AsJson = Annotated[bool, typer.Option("--json", help="For machines")]
ParamsFile = Annotated[Path, typer.Option("--params", help="The file that names them")]

providers = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Who is asked for candidates, and ready entries for more.",
)


@providers.command("list")
def list_providers(
    params: ParamsFile = Path("params.yaml"),
    profile: Annotated[str | None, typer.Option(help="List a ready profile instead")] = None,
    as_json: AsJson = False,
) -> None:
    """List each provider with its model, its price, its budget, and whether its key is set.

    Example: cudal1 providers list --profile paper
    """
    from cudal1.settings import profiles
    from cudal1.settings.params import Params

    try:
        found = (
            Params.load(params).generate.providers
            if profile is None
            else profiles.load(profile, profiles.ProviderProfile).providers
        )
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json(
            [
                {"name": name, **settings.model_dump(mode="json"), "key_is_set": _has_key(settings)}
                for name, settings in found.items()
            ]
        )
        return
    width = max(map(len, found))
    for name, settings in found.items():
        answer(f"{name:<{width}}  {settings.kind}: {_described(settings)}")


@providers.command()
def add(
    profile: Annotated[str, typer.Argument(help="A ready profile, such as paper")],
    only: Annotated[list[str] | None, typer.Option(help="Of its entries, just this one")] = None,
    params: ParamsFile = Path("params.yaml"),
    as_json: AsJson = False,
) -> None:
    """Add a profile's entries to params.yaml; what stands there already stays as it is.

    Example: cudal1 providers add paper --only gpt-4o
    """
    from cudal1.cli.options.params_file import change, read
    from cudal1.settings import profiles
    from cudal1.settings.params import Params

    added: list[str] = []
    try:
        Params.load(params)  # errors that params.yaml already has are reported first
        ready = read(profiles.path_of(profile, profiles.ProviderProfile))["providers"]
        wanted = only or list(ready)
        if unknown := [name for name in wanted if name not in ready]:
            fail(f"profile {profile} has no {unknown[0]}; it has {', '.join(ready)}")

        def extend(content: Any) -> None:
            there = content["generate"]["providers"]
            added.extend(name for name in wanted if name not in there)
            there.update({name: ready[name] for name in added})

        change(params, extend)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        known = [name for name in wanted if name not in added]
        answer_json({"added": added, "there_already": known})
        return
    for name in wanted:
        answer(f"{name}: {'added' if name in added else 'is there already'}")
    answer("what it would cost: python -m tasks.generate --dry-run")


def _described(settings: ProviderSettings) -> str:
    """Return what the provider asks and how it charges: its key, its prices, its budget."""
    given: dict[str, Any] = settings.model_dump()
    asks = given.get("model") or given.get("teacher") or given.get("path") or "shipped recordings"
    if "base_url" not in given:
        return str(asks)
    variable, budget = given["api_key_env"], given["budget_usd"]
    state = "set" if _has_key(settings) else "NOT set"
    return "; ".join(
        [
            f"{asks} at {given['base_url']}",
            "no key" if variable is None else f"{variable} is {state}",
            f"{given['usd_per_million_prompt_tokens']:g} USD per million tokens in, "
            f"{given['usd_per_million_completion_tokens']:g} out",
            "no budget" if budget is None else f"stops at {budget:g} USD",
        ]
    )


def _has_key(settings: ProviderSettings) -> bool | None:
    """Return whether the provider's key variable is set; None where no key is needed."""
    variable = getattr(settings, "api_key_env", None)
    return None if variable is None else bool(os.environ.get(variable, "").strip())
