"""Stage `transfer@DEVICE`: judge the best candidates again, on this device or one of another kind.

The best of many measurements is partly luck, so the report's headline is what this stage measures.
The candidates are those of the stages that the report shows, and of no others in the ledger: what a
night or a removed provider found is no winner.

The references of their problems are judged beside them, against themselves: that shows the speedup
certified there for no work. The stage runs only where a device of that name is: `cpu`, or a GPU's
name in lower case with dashes. A problem too large for the device costs a line of the log. Results
of several machines meet as shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError
from cudal1.harness.device.device import find_device
from cudal1.ledger import Ledger
from cudal1.services.judging import verdict_source
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA, Stage, main
from tasks.stages import stage_names


def judge_again(stage: Stage) -> Mapping[str, float | int]:
    """Best candidates of the run's stages → data/transfer/DEVICE.parquet."""
    wanted = stage.instance
    if (here := device_name(find_device(stage.params.device).kind)) != wanted:
        raise DeviceError(
            f"{stage.name}: this machine judges on {here}; run this stage where {wanted} is"
        )
    problems = {problem.id: problem for problem in admitted_problems()}
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        # a protocol of its own: same rules but new measurements, which leave the winners' luck
        # behind
        anew = stage.params.protocol.model_copy(update={"seed": stage.params.protocol.seed + 1})
        rows = ledger.query(
            "winners",
            protocol_id=stage.params.protocol.id,
            stages=stage_names(until="transfer"),
            count=stage.params.transfer.per_problem,
        ).to_dicts()
        chosen = [
            (
                problems[row["problem_id"]],
                Candidate(problem_id=row["problem_id"], source=row["source"]),
            )
            for row in rows
            if row["problem_id"] in problems
        ]
        for _, candidate in chosen:
            ledger.add_candidate(candidate)
        references = [
            (problem, Candidate(problem_id=problem.id, source=problem.null_source))
            for problem in dict.fromkeys(problem for problem, _ in chosen)
        ]
        # a problem is prepared once
        asked = sorted([*chosen, *references], key=lambda pair: pair[0].id)
        params = stage.params.model_copy(update={"protocol": anew})
        with (
            verdict_source(ledger, params, num_policies=0) as judge,
            progress("winners", len(asked)) as advance,
        ):
            verdicts = judge.judge_possible(asked, advance)
        found = {v.candidate_id: v.speedup or 0.0 for v in verdicts if v is not None}
        again, nothing = (
            [found[candidate.id] for _, candidate in pairs if candidate.id in found]
            for pairs in (chosen, references)
        )
        ledger.export()
        ledger.write_product(
            "transferred",
            DATA / "transfer" / f"{wanted}.parquet",
            stage=stage.name,
            protocol_id=anew.id,
        )
    return {
        "num_winners": len(chosen),
        "num_refused": len(chosen) - len(again),
        "mean_certified": fmean(again) if again else 0.0,
        "null_test_max": max(nothing, default=0.0),
    }


def device_name(kind: str) -> str:
    """Return a kind of device as params.yaml and file names write it."""
    return kind.lower().replace(" ", "-")


if __name__ == "__main__":
    main("transfer", judge_again)
