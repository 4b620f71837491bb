"""Print a summary when the pipeline has finished: a table, the report's path, next commands."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from cudal1.services.telling import process_s
from tasks.server.findings import found
from tasks.server.pace import latest, took
from tasks.stage import DATA

NEXT = (
    ("Prefect UI", "make prefect", "when each stage ran"),
    ("MLflow UI", "make mlflow", "learning curves and checkpoints"),
    ("SQL", 'make sql Q="from best order by certified desc limit 10"', "every candidate"),
)


def print_summary() -> None:
    """Print the marks of each stage's policy, headlines, findings, time and the next commands."""
    console = Console()
    table = Table(title="Policies on held-out problems (reward 0 for a failure; 95 % intervals)")
    for column in ("policy", "success", "mean reward", "mean of best", "answers"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    rounds = sorted(path.name for path in (DATA / "shards").glob("selfsup@*"))
    policies = (
        ("base", "policy"),
        ("sft", "sft"),
        *((name.replace("selfsup@", "self-supervised "), name) for name in rounds),
        ("contrastive RL", "rl"),
    )
    for name, stage in policies:
        marks = _metrics(stage)
        if marks:
            table.add_row(
                name,
                f"{marks['heldout_success']:.1%}{_between(marks, 'heldout_success', '{:.1%}')}",
                f"{marks['heldout_mean_reward']:.3f}"
                f"{_between(marks, 'heldout_mean_reward', '{:.3f}')}",
                f"{marks['heldout_mean_best_reward']:.3f}",
                str(marks["heldout_num_answers"]),
            )
    console.print(table)
    judged = _metrics("filter")
    if judged:
        console.print(
            f"candidates {judged['num_candidates']} · correct {judged['num_correct']} · "
            f"incorrect {judged['num_incorrect']} · crashed {judged['num_crashed']} · "
            f"no build {judged['num_no_build']} · timed out {judged['num_timed_out']} · "
            f"kept for training {judged['num_kept']} · "
            f"reviewer: {judged['reviewer']}"
        )
    _print_findings(console)
    page = DATA / "report" / "index.html"
    if page.exists():
        console.print(f"\nreport: [bold]{page}[/bold]")
    console.print(took(process_s(), latest()), highlight=False)
    console.print("next:")
    for what, command, why in NEXT:
        console.print(f"  {what:<11}[bold]{command}[/bold]  ({why})", highlight=False)


def _print_findings(console: Console) -> None:
    """Print the run's headlines as the last table, and its five sentences."""
    said = found()
    if not said:
        return
    table = Table(title="The run", show_header=False)
    for style in ("", "bold", ""):
        table.add_column(style=style)
    for tile in said["headlines"]:
        table.add_row(tile["label"], tile["value"], tile["note"])
    console.print(table)
    console.print("\nwhat this run shows:")
    for number, text in enumerate(said["findings"], 1):
        console.print(f"  {number}. {text}", highlight=False, markup=False)


def _between(marks: dict[str, Any], name: str, how: str) -> str:
    low, high = marks.get(f"{name}_low"), marks.get(f"{name}_high")
    return "" if low is None or high is None else f" ({how.format(low)} to {how.format(high)})"


def _metrics(stage: str) -> dict[str, Any]:
    """Return the metrics of a stage that has run here; those in git alone are the shipped run's."""
    path = DATA / "metrics" / f"{stage.replace('@', '-')}.json"
    has_run = (DATA / "shards" / stage).is_dir() and path.exists()
    return json.loads(path.read_text(encoding="utf-8")) if has_run else {}
