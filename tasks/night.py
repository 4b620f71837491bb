"""A night: which champion is challenged, and how often it has been before.

`data/nightly/night.json` is what the stages in flows/night/dvc.yaml are made from, and
`data/nightly/end.json` what came of them. Whoever opens a night while the last one has no end goes
on with that one: what it has judged and trained is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cudal1 import tracking
from cudal1.errors import ConfigError
from cudal1.record import Record
from tasks.stage import DATA

FOLDER = DATA / "nightly"
CHAMPION = "champion"
"""The alias in MLflow's registry: the policy that nights start from."""
_Kind = TypeVar("_Kind", bound=Record)
_NIGHT, _END = FOLDER / "night.json", FOLDER / "end.json"


class Night(Record):
    """What a night is asked to do."""

    number: int
    champion: int
    """Its version in the registry."""
    champion_made_at: str
    """ISO 8601, UTC."""
    challenge: int
    """How many challengers this champion has met in its reign, tonight's counted."""
    opened_at: str
    """ISO 8601, UTC."""


class End(Record):
    """What came of a night."""

    number: int
    """Of the night."""
    promoted: int | None
    """The new champion's version."""
    why: str
    """One sentence, for people."""


def open_night(*, afresh: bool = False) -> Night:
    """The night to work on: one that has no end goes on, else a new one begins.

    `afresh` gives an unfinished one up; so does a champion that a person has changed meanwhile. The
    challenge counts all the same: it may have been looked at.

    Raises:
        ConfigError: there is no policy to start from.
        StoreError: MLflow's store refuses.
    """
    last = read(_NIGHT, Night) if _NIGHT.exists() else None
    champion = tracking.version_of(DATA, tracking.MODEL_NAME, alias=CHAMPION) or _first_champion()
    reigns_on = last is not None and last.champion == champion.number
    if last is not None and reigns_on and not afresh and end_of(last) is None:
        return last
    night = Night(
        number=1 if last is None else last.number + 1, champion=champion.number,
        champion_made_at=champion.made_at,
        challenge=last.challenge + 1 if last is not None and reigns_on else 1,
        opened_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    write(_NIGHT, night)
    return night


def current_night() -> Night:
    """The night that was opened last.

    Raises:
        ConfigError: none was.
    """
    return read(_NIGHT, Night)


def end_of(night: Night) -> End | None:
    """What came of it; None: it has not ended."""
    if not _END.exists():
        return None
    found = read(_END, End)
    return found if found.number == night.number else None


def end_night(end: End) -> None:
    """Write down what came of a night."""
    write(_END, end)


def read(path: Path, kind: type[_Kind]) -> _Kind:
    """A record that a stage of the night has left.

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
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _first_champion() -> tracking.Version:
    newest = tracking.version_of(DATA, tracking.MODEL_NAME, alias=tracking.NEWEST)
    if newest is None:
        raise ConfigError(
            "no policy to start from: the registry has neither a champion nor what a pipeline has "
            "made; run `make run` first"
        )
    tracking.point(DATA, tracking.MODEL_NAME, alias=CHAMPION, version=newest.number)
    return newest
