"""Stage `filter`: judge every generated candidate; keep the successful ones (paper 2.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.ledger import Ledger
from cudal1.services.judging import verdict_source
from cudal1.services.reviewing import reviewer_name
from cudal1.verdict import Status
from tasks.products import admitted_problems, product
from tasks.progress import progress
from tasks.stage import DATA, Stage, main


def judge_generated(stage: Stage) -> Mapping[str, float | int | str]:
    """data/generate/*.parquet → data/filter.parquet: at most `keep` a problem and provider."""
    problems = {problem.id: problem for problem in admitted_problems()}
    rows = [
        row
        for name in stage.params.generate.providers
        for row in product(DATA / "generate" / f"{name}.parquet")
        if row["source"] is not None and row["problem_id"] in problems
    ]
    kept: dict[tuple[str, str], set[str]] = defaultdict(set)
    counts: dict[Status, int] = defaultdict(int)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        # one problem after another, so that a reference is prepared once
        rows.sort(key=lambda row: (str(row["problem_id"]), str(row["provider"])))
        asked = [
            (
                problem := problems[str(row["problem_id"])],
                Candidate(problem_id=problem.id, source=str(row["source"])),
            )
            for row in rows
        ]
        for row in rows:
            ledger.adopt_completion(str(row["completion_id"]))
        with (
            verdict_source(ledger, stage.params, num_policies=0) as judge,
            progress("candidates", len(rows)) as advance,
        ):
            verdicts = judge.judge_possible(asked, advance)
        if judge.num_refused == len(rows) > 0:
            raise SuiteError("no candidate could be judged; the reasons are above")
        # in the order of rows, not of judging
        for row, (problem, candidate), verdict in zip(rows, asked, verdicts, strict=True):
            if verdict is None:
                continue
            counts[verdict.status] += 1
            group = kept[problem.id, str(row["provider"])]
            if verdict.is_successful and len(group) < stage.params.filter.keep:
                group.add(candidate.id)
        ledger.export()
        chosen = {(*key, candidate) for key, group in kept.items() for candidate in group}
        ledger.write_product(
            "kept",
            DATA / "filter.parquet",
            device_kind=judge.device.kind,
            protocol_id=judge.protocol.id,
            keys=["/".join(key) for key in sorted(chosen)],
        )
    return {
        "num_candidates": len(rows),
        "num_kept": len(chosen),
        "num_judged": judge.num_judged,
        "num_reused": judge.num_reused,
        "num_refused": judge.num_refused,
        "reviewer": reviewer_name(stage.params),
        "num_unreviewed": judge.num_unreviewed,
        **{f"num_{status.value}": counts[status] for status in Status},
    }


if __name__ == "__main__":
    main("filter", judge_generated)
