"""The author that changes numbers: Optuna searches the parameters of versions that were found.

A variant is an answer like any other, with an id of its own, the version that it comes from as its
exemplar, and a verdict. The tuner remembers nothing between runs: each turn builds Optuna's study
anew from the search's verdicts, which the ledger keeps. So nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from cudal1.candidate import Completion
from cudal1.llm.at_once import answering_at_once
from cudal1.llm.provider import Exchange, Receipts, Request, completion_of, request_to
from cudal1.program.parameters import Parameter, parameters, skeleton_of, with_values
from cudal1.prompts.prompt import Message, Prompt, answer_text
from cudal1.record import Record, content_id
from cudal1.services.optimizing.state import Find, State
from cudal1.services.searching.hunt import Asked, Hunt

if TYPE_CHECKING:
    import optuna

TUNER = "tuner"
"""Name of the author."""
MOST_VARIANTS = 32
"""Number of variants of one skeleton that are tried, those of other authors included."""
RANDOM_FIRST = 6
"""Trials of a study that are drawn evenly, before Optuna's sampler (TPE) has enough to learn."""
MOST_DRAWS = 16
"""Draws in a row that may be known before the first untried variant in order is taken."""

Values = tuple[int, ...]
"""Values of a version's parameters, in their order."""


class TunerSettings(Record):
    """The tuner has nothing to set."""


@dataclass(frozen=True)
class Variant:
    """A version with other values of its parameters."""

    parent: Find
    values: dict[str, int]

    @property
    def source(self) -> str:
        """Return the variant's source."""
        return with_values(self.parent.candidate.source, self.values)


class Tuner:
    """Chooses variants of what a search has found."""

    def __init__(self) -> None:
        self._written: dict[str, set[Values]] = {}
        """Values that some author has written, by skeleton; also those that wait for a verdict."""

    def saw(self, source: str) -> None:
        """Note a source that an author has written."""
        found = parameters(source)
        if found:
            self._written.setdefault(skeleton_of(source), set()).add(_values(found))

    def variants(self, state: State, count: int) -> list[Variant]:
        """Return at most `count` variants to try, all of the best version that has untried ones."""
        for parent in _parents(state):
            source = parent.candidate.source
            written = self._written.setdefault(skeleton_of(source), set())
            left = min(count, MOST_VARIANTS + 1 - len(written))
            if found := _untried(state, parent, written, left):
                return found
        return []

    def has_any(self, state: State) -> bool:
        """Return whether there is a variant to try."""
        return bool(self.variants(state, 1))


def requests_for(
    variants: Sequence[Variant],
    provider: TunerProvider,
    hunt: Hunt,
    *,
    stage: str,
    first_attempt: int,
) -> list[Asked]:
    """Return a request for each variant; its exemplar is the version that it comes from."""
    return [
        Asked(
            hunt,
            request_to(
                provider,
                stage=stage,
                problem=hunt.problem,
                prompt=_prompt(variant),
                attempt=attempt,
                seed=0,
            ),
        )
        for attempt, variant in enumerate(variants, start=first_attempt)
    ]


class TunerProvider:
    """A provider that answers with the variant that its prompt describes."""

    name = TUNER
    fingerprint = content_id("tuner")
    is_seeded = False
    width = 1

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """Open an exchange that answers each request at once."""
        return answering_at_once(_answer, receipts)


def _answer(request: Request) -> Completion:
    head, _, source = request.prompt.messages[0].content.partition("\n\n")
    assigned = (line.split(" = ") for line in head.splitlines()[1:])
    variant = with_values(source, {name: int(value) for name, value in assigned})
    return completion_of(request, provider=TUNER, text=answer_text(variant), finish_reason="stop")


def _prompt(variant: Variant) -> Prompt:
    head = "Set these parameters of the version below:"
    lines = [head, *(f"{name} = {value}" for name, value in variant.values.items())]
    content = "\n".join(lines) + "\n\n" + variant.parent.candidate.source
    return Prompt(
        messages=(Message(role="user", content=content),),
        template_id=content_id(head),
        exemplar_ids=(variant.parent.candidate.id,),
        exemplar_scores=(variant.parent.speedup,),
        num_shown=1,
    )


def _parents(state: State) -> list[Find]:
    """Return the best success of each skeleton with parameters, the fastest first."""
    found: dict[str, Find] = {}
    successes = [each for each in state.finds.values() if each.verdict.is_successful]
    for find in sorted(successes, key=_worth, reverse=True):
        if parameters(find.candidate.source):
            found.setdefault(skeleton_of(find.candidate.source), find)
    return list(found.values())


def _worth(find: Find) -> float:
    """Return the estimated speedup, which tells close variants apart; 0 for a failure."""
    measured = find.verdict.measurement
    return measured.speedup if find.verdict.is_successful and measured is not None else 0.0


def _values(found: Sequence[Parameter]) -> Values:
    return tuple(each.value for each in found)


def _untried(state: State, parent: Find, written: set[Values], count: int) -> list[Variant]:
    """Return unwritten variants of a version, as Optuna proposes them."""
    space = parameters(parent.candidate.source)
    if count < 1:
        return []
    every = product(*(each.choices for each in space))
    known = set(written)
    study, kinds = _study(state, parent, space)
    found: list[Variant] = []
    while len(found) < count:
        proposed = _draw(study, kinds, space, known)
        if proposed is None:
            proposed = next((each for each in every if each not in known), None)
        if proposed is None:
            break
        known.add(proposed)
        names = (each.name for each in space)
        found.append(Variant(parent, dict(zip(names, proposed, strict=True))))
    return found


def _study(
    state: State, parent: Find, space: Sequence[Parameter]
) -> tuple[optuna.Study, dict[str, optuna.distributions.BaseDistribution]]:
    """Return a study with a finished trial for each judged variant within the parent's choices.

    A number in the study is the index of a choice, so that neighbours are near each other.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    skeleton = skeleton_of(parent.candidate.source)
    kinds: dict[str, optuna.distributions.BaseDistribution] = {
        each.name: optuna.distributions.IntDistribution(0, len(each.choices) - 1) for each in space
    }
    trials: list[optuna.trial.FrozenTrial] = []
    for find in state.finds.values():
        own = {each.name: each.value for each in parameters(find.candidate.source)}
        if skeleton_of(find.candidate.source) == skeleton and all(
            own.get(each.name) in each.choices for each in space
        ):
            indices = {each.name: each.choices.index(own[each.name]) for each in space}
            trial = optuna.trial.create_trial(
                params=indices, distributions=kinds, value=_worth(find)
            )
            trials.append(trial)
    sampler = optuna.samplers.TPESampler(seed=len(trials), n_startup_trials=RANDOM_FIRST)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(trials)
    return study, kinds


def _draw(
    study: optuna.Study,
    kinds: dict[str, optuna.distributions.BaseDistribution],
    space: Sequence[Parameter],
    known: set[Values],
) -> Values | None:
    """Ask a study for values that are not known; None where it proposes none."""
    from optuna.trial import TrialState

    for _ in range(MOST_DRAWS):
        trial = study.ask(kinds)
        proposed = tuple(each.choices[trial.params[each.name]] for each in space)
        if proposed not in known:
            return proposed  # its verdict is a trial of the next turn's study
        study.tell(trial, state=TrialState.FAIL)
    return None
