"""Prevent accidental payments: a provider that charges is asked only in a run allowed to spend.

    CUDAL1_MAY_SPEND_USD=5 dvc repro generate@gpt-4o

A changed prompt is as many new questions as there are problems, and `dvc repro` asks them. So a new
question to a provider with prices stops the stage, unless this variable says what the run may cost.

It is no parameter on purpose. A file would allow the next run, too, and DVC's `frozen` stages would
go on with answers to another question. Known answers are given again without the variable.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ConfigError, ConsentError
from cudal1.llm.provider import Exchange, Provider, Receipts, Request
from cudal1.settings.provider_settings import OpenAISettings, ProviderSettings

VARIABLE = "CUDAL1_MAY_SPEND_USD"
"""Most that a run of a stage may cost at each provider that it asks, in USD; `inf` is no limit."""


def may_spend_usd() -> float:
    """Return what this run may cost at a provider in USD; 0 unless the variable is set.

    Raises:
        ConfigError: the variable holds no amount.
    """
    given = os.environ.get(VARIABLE, "").strip() or "0"
    try:
        usd = float(given)
    except ValueError:
        usd = math.nan
    if not usd >= 0:
        raise ConfigError(f"{VARIABLE}={given}: give an amount in USD, such as 5, or inf")
    return usd


def is_paid(settings: ProviderSettings) -> bool:
    """Return whether answers of this provider cost money."""
    return isinstance(settings, OpenAISettings) and bool(
        settings.usd_per_million_prompt_tokens
        or settings.usd_per_million_cached_prompt_tokens
        or settings.usd_per_million_completion_tokens
    )


def refusal(provider: str, why: str, *, such_as_usd: float = 5.0) -> ConsentError:
    """Return the error, one line, that stops a run without permission to spend."""
    return ConsentError(
        f"provider {provider} charges, and this run may spend nothing: {why}; to let it spend, put "
        f"{VARIABLE}={such_as_usd:g}, or another amount, before the command"
    )


@dataclass
class WithConsent:
    """A provider that charges; it answers in a run that may spend, up to that amount."""

    provider: Provider
    settings: OpenAISettings
    make: Callable[[OpenAISettings], Provider]
    """Makes the same provider with another budget."""
    allowed_usd: Callable[[], float] = may_spend_usd
    """Returns what this run may spend at the provider, in USD."""
    spent_before_usd: float | None = None
    """Bill when the first exchange was opened, in USD; this run's spending comes on top."""

    @property
    def name(self) -> str:
        """Return the key under `generate.providers` in params.yaml."""
        return self.provider.name

    @property
    def fingerprint(self) -> str:
        """Return the provider's own fingerprint: an answer does not depend on consent."""
        return self.provider.fingerprint

    @property
    def is_seeded(self) -> bool:
        """Return whether a request's seed changes the answer."""
        return self.provider.is_seeded

    @property
    def width(self) -> int:
        """Return the number of requests that it works on at a time."""
        return self.provider.width

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[Exchange]:
        """Open an exchange with what is left of budget and consent.

        Raises:
            ConsentError: this run may not spend, or could not be held to an amount.
            ProviderError: it cannot be started.
        """
        allowed = self.allowed_usd()
        if not allowed:
            raise refusal(self.name, "the next request is a new one")
        if self.settings.max_answer_tokens is None and math.isfinite(allowed):
            raise ConsentError(
                f"provider {self.name}: without max_tokens or max_completion_tokens nobody knows "
                f"what a request may cost; set one, or {VARIABLE}=inf"
            )
        if self.spent_before_usd is None:
            self.spent_before_usd = receipts.spent_usd(self.name)
        limit, budget = self.spent_before_usd + allowed, self.settings.budget_usd
        if math.isinf(limit) or (budget is not None and budget <= limit):
            with self.provider.open(receipts) as exchange:
                yield exchange
            return
        limited = self.settings.model_copy(update={"budget_usd": limit})
        with self.make(limited).open(receipts) as exchange:
            yield _Limited(self.name, allowed, exchange)


@dataclass(frozen=True)
class _Limited:
    """An exchange with a run's consent as its budget; its errors tell when that is used up."""

    name: str
    allowed_usd: float
    exchange: Exchange

    def ask(self, request: Request) -> None:
        """Hand over a request; return at once."""
        self.exchange.ask(request)

    def answer(self) -> Completion:
        """Return the next completion; raise as any exchange does."""
        try:
            return self.exchange.answer()
        except BudgetError as error:
            raise BudgetError(
                f"provider {self.name}: the next request could cost more than is left of the "
                f"{self.allowed_usd:g} USD that this run may spend ({VARIABLE})"
            ) from error
