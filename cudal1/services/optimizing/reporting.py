"""Collect from the ledger what the page of one module shows."""

from __future__ import annotations

from cudal1.harness.admission.reference_profile import ReferenceProfile
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.prompts.feedback import feedback
from cudal1.report.optimized import AuthorRow, OptimizedInput, Tried
from cudal1.services.optimizing.state import State


def page_input(
    ledger: Ledger,
    problem: Problem,
    state: State,
    *,
    module: str,
    headline: str,
    facts: dict[str, str],
    verdict: tuple[tuple[str, str], ...],
    version: str | None,
    profile: ReferenceProfile | None,
    invariants: tuple[str, ...],
    stopped: str,
) -> OptimizedInput:
    """Return the page's input: what was found, and each program that was judged."""
    finds = sorted(state.finds.values(), key=lambda find: find.verdict.judged_at)
    return OptimizedInput(
        module=module,
        headline=headline,
        facts=facts,
        verdict=verdict,
        reference=problem.source,
        version=version,
        profile=() if profile is None else profile.lines,
        invariants=invariants,
        authors=tuple(
            AuthorRow(
                author=name,
                num_answers=tally.num_answers,
                num_unusable=tally.num_unusable,
                num_copies=tally.num_copies,
                num_judged=tally.statuses.total(),
                num_correct=tally.num_correct,
                best=tally.best,
                cost_usd=float(ledger.query("spent", provider=name).item(0, "at_most_usd")),
            )
            for name, tally in state.tallies.items()
        ),
        tried=tuple(
            Tried(
                author=find.author,
                outcome=find.verdict.status.value.replace("_", " "),
                certified=find.verdict.speedup,
                said=" ".join(feedback(find.verdict).split()),
            )
            for find in finds
        ),
        stopped=stopped,
    )
