"""Stage `report`: the null test, then the paper's tables, figures, one page and a summary."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import polars as pl

from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.ledger import Ledger
from cudal1.ledger.shards import read_parquet
from cudal1.report import Provenance, ReportInput
from cudal1.report.inputs import CANDIDATES, NULL_TEST, SAMPLES, SEARCHED, TRANSFERRED
from cudal1.report.policies import Policy, examined
from cudal1.selection import intervals
from cudal1.services.judging import VerdictSource, verdict_source
from cudal1.services.reviewing import reviewer_name
from cudal1.settings.params import Params
from cudal1.tracking import runs as tracking
from cudal1.verdict import Status, Verdict
from tasks.learning.origin import git_revision, origin
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA, PIPELINE, Stage, main
from tasks.stages import stage_names

VERSIONS_OF = ("torch", "transformers", "trl", "duckdb", "polars", "prefect", "dvc", "mlflow")
GENERATIONS = 6
"""Generations back to which descent is followed."""


def write_report(stage: Stage) -> Mapping[str, float | int]:
    """The whole ledger → data/report/index.html, summary.md and a figure."""
    from cudal1.report.publish import publish

    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with verdict_source(ledger, stage.params, num_policies=0) as judge:
            null_test, device_kind = _null_test(judge), judge.device.kind
            _judge_baselines(stage, ledger, judge)
        given = gathered(
            ledger,
            _provenance(stage.params, device_kind),
            null_test,
            baselines=stage.params.report.baselines,
            stages=stage_names(until=stage.name),  # a provider that was removed is not reported
            problems=[problem.id for problem in admitted_problems()],
        )
        ledger.export()
    found = publish(given, DATA / "report")
    _tell(stage, given, found)
    return found


def _tell(stage: Stage, given: ReportInput, found: Mapping[str, float | int]) -> None:
    """End the pipeline's run in MLflow: findings as its description, marks by stage as curves."""
    from cudal1.report.findings import findings

    said = "\n".join(f"{number}. {said}" for number, said in enumerate(findings(given), 1))
    tracking.close(
        DATA,
        PIPELINE,
        text=f"What this run shows:\n\n{said}",
        numbers={
            f"report/{name}": value
            for name, value in found.items()
            if not name.startswith("heldout_")
        },
        by_stage=[_marks(policy) for policy in examined(given)],
        tags=origin(stage),
    )


def _marks(policy: Policy) -> dict[str, float]:
    """Return a policy's marks with their intervals, by the names of a training's run."""
    found = {"success": policy.success, "mean_reward": policy.reward}
    for name, numbers in (("success", policy.successes), ("mean_reward", policy.rewards)):
        interval = intervals.mean(numbers)
        if interval is not None:
            found |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {f"{tracking.HELDOUT}{name}": value for name, value in found.items()}


def gathered(
    ledger: Ledger,
    provenance: Provenance,
    null_test: pl.DataFrame,
    *,
    baselines: Sequence[Baseline],
    stages: Sequence[str],
    problems: Sequence[str],
) -> ReportInput:
    """Return the report's input: numbers of all candidates, details of those shown.

    Args:
        ledger: the facts of the stages.
        provenance: names device and protocol.
        null_test: candidates that are references, with their verdicts.
        baselines: further ways to run references that candidates are compared with.
        stages: the reported stages.
        problems: ids of the admitted problems.
    """
    from cudal1.report.shown import candidates

    where = {"device_kind": provenance.device_kind, "protocol_id": provenance.protocol.id}
    answers = _answers(ledger, stages)
    compared = ledger.query("baselines", baselines=list(baselines), **where)
    # references serve to compare with, unless an answer repeats one
    ours = pl.concat([frame.select("candidate_id") for frame in (null_test, compared)])
    verdicts = ledger.query("latest_verdicts", stages=stages).join(
        ours.join(answers, on="candidate_id", how="anti"), on="candidate_id", how="anti"
    )
    frames: dict[str, Any] = {
        "provenance": provenance,
        "problems": ledger.query("problems"),
        "completions": answers,
        "candidates": CANDIDATES.to_frame(),
        "verdicts": verdicts.filter(pl.col("problem_id").is_in(list(problems))),
        "flags": ledger.query("flags"),
        "null_test": null_test,
        "baselines": compared.filter(pl.col("problem_id").is_in(list(problems))),
        "transferred": _transferred(ledger),
        "searched": _searched(stages),
        "bills": ledger.query("cost").filter(pl.col("num_tries") > 0),
        "second_opinions": ledger.query("second_opinions"),
        "techniques": ledger.query("technique_rows", **where),
        "samples": SAMPLES.to_frame(),
        "steps": ledger.query("all_steps", stages=stages),
        "rises": ledger.query("all_rises", stages=stages),
    }
    # sources and samples are most of a ledger, and a page shows few of them
    shown = candidates(ReportInput(**frames))
    return ReportInput(**(frames | _exhibited(ledger, shown, provenance)))


def _exhibited(ledger: Ledger, shown: Sequence[str], provenance: Provenance) -> dict[str, Any]:
    """Return frames about the candidates that the page shows, and about no others."""
    where = {"device_kind": provenance.device_kind, "protocol_id": provenance.protocol.id}
    return {
        "candidates": ledger.query("sources", candidate_ids=shown),
        "samples": ledger.query("shown_samples", candidate_ids=shown, **where),
        "details": ledger.query("shown_details", candidate_ids=shown, **where),
        "ancestors": ledger.query(
            "ancestors", candidate_ids=shown, generations=GENERATIONS, **where
        ),
    }


def _null_test(judge: VerdictSource) -> pl.DataFrame:
    """Judge every reference as a candidate for itself: what the harness claims for no work."""
    asked = [(p, Candidate(problem_id=p.id, source=p.null_source)) for p in admitted_problems()]
    with progress("null test", len(asked)) as advance:
        verdicts = judge.judge_possible(asked, advance)
    rows = [_null_row(verdict) for verdict in verdicts if verdict is not None]
    if not rows:
        raise SuiteError("no reference could be judged; the reasons are above")
    return pl.DataFrame(rows, schema={**NULL_TEST, "candidate_id": pl.String})


def _null_row(verdict: Verdict) -> dict[str, object]:
    exact = None if verdict.correctness is None else verdict.correctness.precision
    measured = {} if verdict.measurement is None else verdict.measurement.model_dump()
    seen = {} if verdict.properties is None else dict(verdict.properties)
    return {name: (measured | seen).get(name) for name in NULL_TEST.names()} | {
        "problem_id": verdict.problem_id,
        "candidate_id": verdict.candidate_id,
        "status": verdict.status.value,
        "precision": None if exact is None else exact.value,
    }


def _judge_baselines(stage: Stage, ledger: Ledger, judge: VerdictSource) -> None:
    """Judge every reference run in each of the other ways that the report compares with."""
    asked = [
        (problem, as_candidate(problem, baseline), baseline)
        for problem in admitted_problems()
        for baseline in stage.params.report.baselines
    ]
    for _, candidate, baseline in asked:
        ledger.add_baseline(candidate, baseline)
    with progress("baselines", len(asked)) as advance:
        judge.judge_possible([(problem, candidate) for problem, candidate, _ in asked], advance)


def _answers(ledger: Ledger, stages: Sequence[str]) -> pl.DataFrame:
    """Return answers with the stage of the run that used them: readers ask about that stage."""
    frame = ledger.query("answers", stages=stages)
    return frame.with_columns(stage=pl.col("used_by"))


def _transferred(ledger: Ledger) -> pl.DataFrame:
    """Return the winners' second measurements; vetoes hold for older files, too."""
    files = sorted((DATA / "transfer").glob("*.parquet"))
    frames = [TRANSFERRED.to_frame(), *(read_parquet(path) for path in files)]
    together = pl.concat(frames, how="diagonal_relaxed")
    vetoed = ledger.sql("select candidate_id from vetoes")["candidate_id"].to_list()
    hacked = (pl.col("status") == Status.CORRECT.value) & pl.col("candidate_id").is_in(vetoed)
    nothing = [pl.when(~hacked).then(pl.col(name)).alias(name) for name in ("speedup", "certified")]
    status = pl.when(hacked).then(pl.lit(Status.HACKED.value)).otherwise(pl.col("status"))
    return together.with_columns(status.alias("status"), *nothing)


def _searched(stages: Sequence[str]) -> pl.DataFrame:
    """Return the answers of the present search methods; files of removed methods may remain."""
    files = sorted((DATA / "search").glob("*.parquet"))
    frames = [SEARCHED.to_frame(), *(read_parquet(path) for path in files)]
    together = pl.concat(frames, how="diagonal_relaxed")
    return together.filter(pl.col("stage").is_in(stages))


def _provenance(params: Params, device_kind: str) -> Provenance:
    return Provenance(
        title=params.report.title,
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
        git_revision=git_revision(),
        device_kind=device_kind,
        device={"processor": _processor(), "machine": platform.machine()},
        protocol=params.protocol,
        reviewer=reviewer_name(params),
        versions={"python": platform.python_version()} | {n: version(n) for n in VERSIONS_OF},
        params=_flattened(params.model_dump(mode="json")),
        fast_p=params.report.fast_p,
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        named = []
    return named[0] if named else platform.processor()


def _flattened(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


if __name__ == "__main__":
    main("report", write_report, is_told=False)  # its findings follow
