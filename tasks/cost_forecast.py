"""Forecast what stage `generate` would ask, and its cost, without asking a provider.

The forecast walks the same search as the stage, over what the ledger knows. Known answers cost
nothing, and their verdicts say how many are still needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.llm.openai.openai_body import most_cost_usd
from cudal1.llm.provider import EXHAUSTED, Provider, Request, has_failed, request_to
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import generation_prompt
from cudal1.services.asking import described_provider
from cudal1.services.consent import is_paid, may_spend_usd, refusal
from cudal1.services.judging import device_facts
from cudal1.settings.params import Params
from cudal1.settings.provider_settings import OpenAISettings
from tasks.products import admitted_problems
from tasks.stage import DATA


@dataclass(frozen=True)
class Forecast:
    """The questions to one provider."""

    provider: str
    num_known: int
    """Answers that are known already."""
    num_at_least: int
    """Requests needed if every one of them succeeds."""
    num_at_most: int
    """Requests needed if none succeeds."""
    at_most_usd: float | None
    """Cost if each request costs all that it can, in USD; None where answers have no limit."""
    per_answer_usd: float | None
    """Mean cost of the answers that were paid for so far, in USD; None where there is none."""
    spent_usd: float
    budget_usd: float | None


def forecast(params: Params, item: str | None) -> None:
    """Print what each provider, or one, would be asked, and the cost."""
    providers = params.generate.providers
    if item is not None and item not in providers:
        raise ConfigError(f"generate has no provider {item}; it has {', '.join(providers)}")
    problems = admitted_problems(Split.TRAIN)
    with _ledger() as ledger:
        found = [
            _forecast(params, name, problems, ledger) for name in ([item] if item else providers)
        ]
    Console().print(_table(found, num_problems=len(problems)))


def stop_without_consent(params: Params, name: str) -> None:
    """Stop if the stage would ask a provider that charges and the run may not spend.

    Raises:
        ConsentError: with what it would cost.
    """
    if not is_paid(params.generate.providers[name]) or may_spend_usd():
        return
    problems = admitted_problems(Split.TRAIN)
    with _ledger() as ledger:
        found = _forecast(params, name, problems, ledger)
    if found.num_at_most:
        cost, such_as_usd = "without a limit", 5.0
        if found.at_most_usd is not None:
            cost = f"for {found.at_most_usd:.2f} USD at most"
            such_as_usd = math.ceil(round(found.at_most_usd * 100, 6)) / 100 or 0.01
        raise refusal(
            name,
            f"it would be asked {found.num_at_least} to {found.num_at_most} new questions, {cost} "
            f"(`python -m tasks.generate --item {name} --dry-run`)",
            such_as_usd=such_as_usd,
        )


def _ledger() -> AbstractContextManager[Ledger | None]:
    was_asked = (DATA / "ledger.duckdb").exists() or (DATA / "shards").exists()
    return Ledger.read(DATA) if was_asked else nullcontext()


def _forecast(
    params: Params, name: str, problems: Sequence[Problem], ledger: Ledger | None
) -> Forecast:
    settings = params.generate.providers[name]
    provider = described_provider(name, settings)
    priced = settings if isinstance(settings, OpenAISettings) else None
    num_known = num_at_least = num_at_most = 0
    at_most_usd: float | None = 0.0
    for problem in problems:
        known, wanted, left, request = _left_to_ask(params, provider, problem, ledger)
        num_known += known
        num_at_least += wanted
        num_at_most += left
        cost = most_cost_usd(request, priced) if priced and request else 0.0
        at_most_usd = None if at_most_usd is None or cost is None else at_most_usd + left * cost
    return Forecast(
        provider=name,
        num_known=num_known,
        num_at_least=num_at_least,
        num_at_most=num_at_most,
        at_most_usd=at_most_usd,
        per_answer_usd=_per_answer_usd(ledger, name),
        spent_usd=_spent_usd(ledger, name),
        budget_usd=priced.budget_usd if priced else None,
    )


def _left_to_ask(
    params: Params, provider: Provider, problem: Problem, ledger: Ledger | None
) -> tuple[int, int, int, Request | None]:
    """Return known answers, requests needed at least and at most, and the first of these."""
    section = params.generate
    prompt = generation_prompt(problem, style=section.prompts, facts=device_facts(params))
    num_found = 0
    for attempt in range(section.attempts):
        request = request_to(
            provider,
            stage="generate",
            problem=problem,
            prompt=prompt,
            attempt=attempt,
            seed=section.seed,
        )
        if num_found >= section.successes:
            return attempt, 0, 0, None
        known = None if ledger is None else ledger.completion(request.id)
        if known is None or has_failed(known):
            left = section.attempts - attempt
            return attempt, min(left, section.successes - num_found), left, request
        if known.finish_reason == EXHAUSTED:
            return attempt, 0, 0, None
        num_found += ledger is not None and _has_succeeded(ledger, request.id)
    return section.attempts, 0, 0, None


def _has_succeeded(ledger: Ledger, completion_id: str) -> bool:
    found = ledger.sql(
        "select 1 from completions join judged using (candidate_id) "
        "where completion_id = ? and status = 'correct' limit 1",
        [completion_id],
    )
    return found.height > 0


def _per_answer_usd(ledger: Ledger | None, provider: str) -> float | None:
    if ledger is None:
        return None
    found = ledger.sql(
        "select avg(cost_usd) as usd from tries where provider = ? and outcome = 'answered'",
        [provider],
    )
    return found.item(0, "usd")


def _spent_usd(ledger: Ledger | None, provider: str) -> float:
    return 0.0 if ledger is None else ledger.query("spent", provider=provider).item(0, "cost_usd")


def _table(found: Sequence[Forecast], *, num_problems: int) -> Table:
    table = Table(
        title=f"What generate would ask about {num_problems} problems",
        caption="At most: every attempt is used, every answer has its full length, no try is lost. "
        "Likely: requests times what an answer of the provider has cost so far.",
    )
    for column in (
        "provider",
        "answers known",
        "requests",
        "likely USD",
        "at most USD",
        "spent USD",
        "budget USD",
    ):
        table.add_column(column, justify="left" if column == "provider" else "right")
    for each in found:
        mean = each.per_answer_usd
        likely = "unknown" if each.num_at_most else "0"
        if mean is not None:
            likely = f"{each.num_at_least * mean:.4f} to {each.num_at_most * mean:.4f}"
        table.add_row(
            each.provider,
            str(each.num_known),
            f"{each.num_at_least} to {each.num_at_most}",
            likely,
            "no limit" if each.at_most_usd is None else f"{each.at_most_usd:.4f}",
            f"{each.spent_usd:.4f}",
            "none" if each.budget_usd is None else f"{each.budget_usd:g}",
        )
    return table
