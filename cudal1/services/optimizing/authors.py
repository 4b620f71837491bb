"""The providers that are asked for versions of one module, by the names that a person gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cudal1.errors import ConfigError, ConsentError
from cudal1.llm.provider import Provider
from cudal1.problem import DeviceClass
from cudal1.program.backends import PACKAGE, Backend
from cudal1.prompts.prompt import PromptStyle
from cudal1.services.asking import provider_of
from cudal1.services.consent import is_paid, may_spend_usd
from cudal1.services.optimizing.tuner import TUNER, TunerProvider, TunerSettings
from cudal1.settings import profiles
from cudal1.settings.params import Params
from cudal1.settings.provider_settings import (
    EndpointSettings,
    LocalSettings,
    ProviderSettings,
    RewriterSettings,
)

TEACHERS, EMBEDDED = "teachers", "embedded"
"""Names of the authors that need no key and no network, beside the tuner."""
TEACHER_NAMES = ("librarian", "algebraist", "fuser", "gambler")
"""Teachers in the order of their turns. The two others mostly copy the reference."""
POLICY_TOKENS = 256
"""Maximum tokens of an answer of the embedded policy; its lessons were shorter."""
QUICK, BATCH, REMOTE = 4, 8, 4
"""Answers in a turn of a teacher, of a policy on this machine, and of a server at most."""


@dataclass
class Author:
    """A provider with its part in the search."""

    name: str
    settings: ProviderSettings | TunerSettings
    provider: Provider
    num_dry: int = 0
    """Number of its last turns that brought no new program."""
    stopped: str | None = None
    """The reason why it is not asked again in this run; None: it is."""

    @property
    def is_free_and_quick(self) -> bool:
        """Return whether its answers cost neither money nor time."""
        return isinstance(self.settings, RewriterSettings | TunerSettings)

    @property
    def is_tuner(self) -> bool:
        """Return whether it changes the numbers of what others found."""
        return isinstance(self.settings, TunerSettings)

    @property
    def prompts(self) -> PromptStyle:
        """Return the style of its prompts: policies of ours learned the short one."""
        is_ours = self.is_free_and_quick or isinstance(self.settings, LocalSettings)
        return PromptStyle.COMPACT if is_ours else PromptStyle.PAPER

    @property
    def answers_per_turn(self) -> int:
        """Return the number of answers that it is asked for at a time."""
        match self.settings:
            case RewriterSettings() | TunerSettings():
                return QUICK
            case EndpointSettings(concurrency=concurrency):
                return min(REMOTE, concurrency)
            case _:
                return BATCH


def default_names(backend: Backend | None = None) -> list[str]:
    """Return the authors without a key or network; the policy only where it can be loaded.

    Raises:
        ConfigError: a language of kernels is asked for, which none of them writes.
    """
    if backend is not None:
        raise ConfigError(
            f"--backend {backend}: the authors without a key write PyTorch; name one that writes "
            "kernels, such as --with gpt-4o"
        )
    return [TEACHERS, *([EMBEDDED] if find_spec("transformers") else []), TUNER]


def authors(names: Sequence[str], params: Path | None, *, usd: float | None) -> list[Author]:
    """Return the named authors, in their order.

    Args:
        names: `teachers`, `embedded`, `tuner`, entries of the params file, or ready entries.
        params: a params.yaml with providers that may be named; None: none is read.
        usd: what the run may spend at all of them together, in USD; None: what the environment
            allows at each.

    Raises:
        ConfigError: there is no provider of a name, or a budget in USD has nothing to pay.
        ConsentError: a provider charges, and the run may spend nothing.
        ProviderError: a provider's key, weights or recordings are missing.
    """
    known = _known(params)
    found: dict[str, ProviderSettings] = {}
    for name in (each for each in names if each != TUNER):
        entries = known.get(name)
        if entries is None:
            raise ConfigError(
                f"--with {name}: no such provider; name {', '.join(known)}, {TUNER}, or an entry "
                "of a file that --params names"
            )
        found |= entries
    num_paid = sum(is_paid(settings) for settings in found.values())
    if usd is not None and not num_paid:
        raise ConfigError(
            f"--usd {usd:g}: none of {', '.join(names)} charges; give --minutes or --verdicts"
        )
    if num_paid and usd is None and not may_spend_usd():
        name = next(name for name, settings in found.items() if is_paid(settings))
        raise ConsentError(
            f"--with {name}: it charges; say what this run may spend, such as --usd 5"
        )
    allowed = may_spend_usd if usd is None else (lambda: usd / num_paid)
    asked = [
        Author(name, settings, provider_of(name, settings, allowed_usd=allowed))
        for name, settings in found.items()
    ]
    tuner = [Author(TUNER, TunerSettings(), TunerProvider())] if TUNER in names else []
    return [*asked, *tuner]


def _known(params: Path | None) -> dict[str, Mapping[str, ProviderSettings]]:
    """Return the settings of each name; a name of the params file hides a ready one."""
    ready: dict[str, ProviderSettings] = {}
    for profile in profiles.names(profiles.ProviderProfile):
        ready |= profiles.load(profile, profiles.ProviderProfile).providers
    if params is not None:
        ready |= Params.load(params).generate.providers
    teachers = {name: RewriterSettings(kind="rewriter", teacher=name) for name in TEACHER_NAMES}
    own: dict[str, Mapping[str, ProviderSettings]] = {
        TEACHERS: teachers,
        EMBEDDED: {EMBEDDED: _embedded()},
    }
    return own | {name: {name: settings} for name, settings in ready.items()}


def _embedded() -> LocalSettings:
    from cudal1.train.policy import EMBEDDED as FOLDER

    return LocalSettings(
        kind="local",
        path=str(FOLDER),
        temperature=None,
        top_p=None,
        max_tokens=POLICY_TOKENS,
        batch_size=BATCH,
    )


def refuse_backend(backend: Backend, device_class: DeviceClass) -> None:
    """Refuse a language of kernels that cannot run here.

    Raises:
        ConfigError: there is no GPU, or the language's package is not installed.
    """
    if device_class is not DeviceClass.CUDA:
        raise ConfigError(f"--backend {backend}: its kernels need a GPU; use --device cuda on one")
    if backend not in PACKAGE:
        return
    module, package = PACKAGE[backend]
    if find_spec(module) is None:
        raise ConfigError(f"--backend {backend}: there is no {module}; pip install {package}")
