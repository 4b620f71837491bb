"""Stage `promote` of a night: move the alias if the challenger is certified better.

The stage runs once a night, since night.json is one of its dependencies. Running it again changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.selection.duel import Duel, Outcome
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking
from tasks.learning.origin import origin
from tasks.night.duel import DUEL
from tasks.night.night import CHAMPION, End, Night, current_night, end_night, read
from tasks.stage import DATA, Stage, log, main


def decide(stage: Stage) -> Mapping[str, float | int | str]:
    """data/nightly/duel.json → data/nightly/end.json, and MLflow's alias `champion`."""
    night, duel = current_night(), read(DUEL, Duel)
    champion = registry.version_of(DATA, registry.MODEL_NAME, alias=CHAMPION)
    number = None if champion is None else champion.number
    promoted = _promoted_before(night, number)
    if promoted is None and duel.outcome is Outcome.BETTER and number == night.champion:
        promoted = _promote(night, duel)
    end = End(number=night.number, promoted=promoted, why=_why(night, duel, promoted, number))
    end_night(end)
    _tell(stage, night, duel, end)
    log.info("%s: %s", stage.name, end.why)
    return {"night": night.number, "is_promoted": int(promoted is not None), "why": end.why}


def _tell(stage: Stage, night: Night, duel: Duel, end: End) -> None:
    """End the night's run in MLflow, with its result as its description."""
    tracking.close(
        DATA,
        night.whole,
        text=f"{end.why[0].upper()}{end.why[1:]}.",
        numbers={
            f"duel/{name}": value
            for name, value in duel.model_dump().items()
            if isinstance(value, int | float)
        },
        tags=origin(stage),
        is_only=True,
    )


def _promoted_before(night: Night, champion: int | None) -> int | None:
    """Return the champion's version, if this night has made it but was killed before noting it."""
    if champion is None or champion == night.champion:
        return None
    tags = registry.notes(DATA, registry.MODEL_NAME, version=champion)
    return champion if tags.get("opened_at") == night.opened_at else None


def _promote(night: Night, duel: Duel) -> int:
    challenger = DATA / "policy" / "challenger"
    version = registry.register(
        DATA,
        registry.MODEL_NAME,
        challenger,
        alias="challenger",
        why=f"promoted over version {night.champion}: {_found(duel)}",
    )
    registry.note(
        DATA,
        registry.MODEL_NAME,
        version=version,
        tags={
            "night": night.number,
            "opened_at": night.opened_at,
            "replaces": night.champion,
            "gain": f"{duel.gain:.4f}",
            "gain_lower": f"{duel.lower:.4f}",
            "num_problems": duel.num_pairs,
            "alpha": f"{duel.alpha:.3g}",
        },
    )
    registry.point(DATA, registry.MODEL_NAME, alias=CHAMPION, version=version)
    return version


def _found(duel: Duel) -> str:
    """Return what the duel has found, in one clause."""
    return (
        f"its answers earn {duel.gain:+.3f} more reward in the mean of {duel.num_pairs} new "
        f"held-out problems (at least {duel.lower:+.3f}, at most {duel.upper:+.3f}, each wrong "
        f"with probability {duel.alpha:.2g} at most)"
    )


def _why(night: Night, duel: Duel, promoted: int | None, champion: int | None) -> str:
    found = _found(duel)
    if promoted is not None:
        return f"promoted version {promoted} over {night.champion}: {found}"
    kept = f"kept version {night.champion}"
    match duel.outcome:
        case Outcome.BETTER:
            return (
                f"left version {champion}: somebody made it the champion in place of "
                f"{night.champion} during the night, and the challenger was judged against the "
                f"latter; {found}"
            )
        case Outcome.IDENTICAL:
            return f"{kept}: the ledger has gained no lesson since it was made"
        case Outcome.WORSE:
            return f"{kept}: the challenger is certified worse; {found}"
        case Outcome.NOT_CERTIFIED:
            return f"{kept}: the challenger is not certified better; {found}"


if __name__ == "__main__":
    main("promote", decide)
