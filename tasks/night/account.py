"""Report a night's flow run to an operator: a page of Markdown for Prefect's UI."""

from __future__ import annotations

import json
from typing import Any

from tasks.night.night import End, Night
from tasks.server.findings import address
from tasks.stage import DATA

Numbers = dict[str, Any]


def account(night: Night, end: End | None, failed: str | None) -> str:
    """Return the night's result, its reason, its numbers, and the remedy for a failure."""
    duel = _of(night, "duel")
    parts = [_headline(night, end), _why(end, failed), _table(night, duel)]
    if duel.get("num_pairs"):
        parts.append(_bound(duel))
    parts.append(f"The pipeline's report: {address()} · policies and curves: `make mlflow`")
    return "\n\n".join(part for part in parts if part)


def _headline(night: Night, end: End | None) -> str:
    if end is None:
        return f"# Night {night.number}: not finished"
    if end.promoted is None:
        return f"# Night {night.number}: version {night.champion} stays champion"
    return f"# Night {night.number}: version {end.promoted} is the new champion"


def _why(end: End | None, failed: str | None) -> str:
    if end is not None:
        return f"{end.why[0].upper()}{end.why[1:]}."
    return (
        f"**{failed or 'stopped'}**\n\nWhat was judged and trained is kept. Once the cause is "
        "mended, `dvc repro flows/night/dvc.yaml` or the next run of this deployment goes on."
    )


def _table(night: Night, duel: Numbers) -> str:
    """Return champion beside challenger; a dash where a number is not there yet."""
    champion, challenger = _of(night, "champion"), _of(night, "challenger")
    lessons = _of(night, "lessons")
    marks = (
        ("success", "heldout_success", "{:.1%}"),
        ("mean reward", "heldout_mean_reward", "{:.3f}"),
        ("mean of best", "heldout_mean_best_reward", "{:.3f}"),
    )
    rows = [
        f"| {what} on the run's held-out problems | {_shown(champion, key, how)} "
        f"| {_shown(challenger, key, how)} |"
        for what, key, how in marks
    ]
    rows.append(
        f"| **mean reward on {_shown(duel, 'num_pairs', '{}')} new problems, the duel's** "
        f"| **{_shown(duel, 'champion_mean_reward', '{:.3f}')}** "
        f"| **{_shown(duel, 'challenger_mean_reward', '{:.3f}')}** |"
    )
    rows.append(
        f"| lessons it was taught, of them new | | {_shown(lessons, 'num_lessons', '{}')}, "
        f"{_shown(lessons, 'num_new', '{}')} |"
    )
    head = f"| | champion (version {night.champion}) | challenger |\n|---|--:|--:|"
    return "\n".join([head, *rows])


def _bound(duel: Numbers) -> str:
    return (
        f"Outcome `{duel['outcome']}`: the challenger's answers earn {duel['gain']:+.3f} more, at "
        f"least {duel['lower']:+.3f} and at most {duel['upper']:+.3f}. It is this champion's "
        f"challenge number {duel['challenge']}, so a challenger that is no better is promoted with "
        f"probability {duel['alpha']:.2g} at most. Only the duel decides; the run's own held-out "
        "problems are shown to be looked at."
    )


def _shown(numbers: Numbers, key: str, how: str) -> str:
    return how.format(numbers[key]) if key in numbers else "-"


def _of(night: Night, stage: str) -> Numbers:
    """Return a stage's numbers, if it has run this night."""
    path = DATA / "metrics" / f"{stage}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found if found.get("night") == night.number else {}
