"""Open, read and end a night: the challenge of one champion.

The stages in flows/night/dvc.yaml depend on `data/nightly/night.json`, and `data/nightly/end.json`
holds their result. Opening a night while the last one has no end continues the last one: what it
has judged and trained is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cudal1.errors import ConfigError
from cudal1.record import Record
from cudal1.tracking import registry
from tasks.stage import DATA

FOLDER = DATA / "nightly"
CHAMPION = "champion"
"""Alias in MLflow's registry of the policy that nights start from."""
_Kind = TypeVar("_Kind", bound=Record)
_NIGHT, _END = FOLDER / "night.json", FOLDER / "end.json"


class Night(Record):
    """The task of a night."""

    number: int
    champion: int
    """Version of the champion in the registry."""
    champion_made_at: str
    """Time of the champion's making: ISO 8601, UTC."""
    challenge: int
    """Number of challengers that this champion has met in its reign, tonight's counted."""
    opened_at: str
    """Time of the night's opening: ISO 8601, UTC."""

    @property
    def whole(self) -> str:
        """Return the name in MLflow of the run that holds the runs of the night's stages."""
        return f"night {self.number}"


class End(Record):
    """The result of a night."""

    number: int
    """Number of the night."""
    promoted: int | None
    """Version of the new champion."""
    why: str
    """Reason in one sentence, for people."""


def open_night(*, afresh: bool = False) -> Night:
    """Return the unfinished night to continue, or else a new one.

    `afresh` gives up an unfinished night; so does a champion that a person has changed meanwhile.
    The challenge counts all the same, since its result may have been looked at.

    Raises:
        ConfigError: there is no policy to start from.
        StoreError: MLflow's store refuses.
    """
    last = read(_NIGHT, Night) if _NIGHT.exists() else None
    champion = registry.version_of(DATA, registry.MODEL_NAME, alias=CHAMPION) or _first_champion()
    reigns_on = last is not None and last.champion == champion.number
    if last is not None and reigns_on and not afresh and end_of(last) is None:
        return last
    night = Night(
        number=1 if last is None else last.number + 1,
        champion=champion.number,
        champion_made_at=champion.made_at,
        challenge=last.challenge + 1 if last is not None and reigns_on else 1,
        opened_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write(_NIGHT, night)
    return night


def current_night() -> Night:
    """Return the night that was opened last.

    Raises:
        ConfigError: none was.
    """
    return read(_NIGHT, Night)


def end_of(night: Night) -> End | None:
    """Return a night's result; None if it has not ended."""
    if not _END.exists():
        return None
    found = read(_END, End)
    return found if found.number == night.number else None


def end_night(end: End) -> None:
    """Write down the result of a night."""
    write(_END, end)


def read(path: Path, kind: type[_Kind]) -> _Kind:
    """Return a record that a stage of the night has written.

    Raises:
        ConfigError: it is absent or damaged.
    """
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; open a night with `python -m flows.nightly`"
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"{path}: damaged; delete it and open a night with `python -m flows.nightly`"
        ) from error


def write(path: Path, record: Record) -> None:
    """Write a record atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _first_champion() -> registry.Version:
    best = registry.version_of(DATA, registry.MODEL_NAME, alias=registry.BEST)
    if best is None:
        raise ConfigError(
            "no policy to start from: the registry has neither a champion nor what a pipeline has "
            "made; run `make run` first"
        )
    registry.point(DATA, registry.MODEL_NAME, alias=CHAMPION, version=best.number)
    return best
