"""Stage `transfer@DEVICE`: judge the best candidates again on a device of another kind.

Beside them the references of their problems, against themselves: what is certified for nothing
there. Runs only where a device of that name is: `cpu`, or a GPU's name in lower case with dashes.
What is too large for it costs a line. Results of several machines meet as shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError
from cudal1.harness import find_device
from cudal1.ledger import Ledger
from tasks.judging import admitted_problems, bench
from tasks.progress import progress
from tasks.stage import DATA, Stage, main


def judge_again(stage: Stage) -> Mapping[str, float | int]:
    """Best candidates of `filter` and `rl` → data/transfer/DEVICE.parquet."""
    wanted = stage.instance
    if (here := device_name(find_device(stage.params.device).kind)) != wanted:
        raise DeviceError(
            f"{stage.name}: this machine judges on {here}; run this stage where {wanted} is"
        )
    problems = {problem.id: problem for problem in admitted_problems()}
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        # a protocol of its own: same rules, measured anew, so that the winners' luck is left behind
        anew = stage.params.protocol.model_copy(update={"seed": stage.params.protocol.seed + 1})
        rows = ledger.query(
            "winners", protocol_id=stage.params.protocol.id, stages=["filter", "rl"],
            count=stage.params.transfer.per_problem,
        ).to_dicts()  # fmt: skip
        chosen = [
            (problems[row["problem_id"]],
             Candidate(problem_id=row["problem_id"], source=row["source"]))
            for row in rows if row["problem_id"] in problems
        ]  # fmt: skip
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
            bench(ledger, params, num_policies=0) as judge,
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
            "transferred", DATA / "transfer" / f"{wanted}.parquet",
            stage=stage.name, protocol_id=anew.id,
        )  # fmt: skip
    return {
        "num_winners": len(chosen), "num_refused": len(chosen) - len(again),
        "mean_certified": fmean(again) if again else 0.0,
        "null_test_max": max(nothing, default=0.0),
    }  # fmt: skip


def device_name(kind: str) -> str:
    """How a kind of device is written in params.yaml and file names."""
    return kind.lower().replace(" ", "-")


if __name__ == "__main__":
    main("transfer", judge_again)
