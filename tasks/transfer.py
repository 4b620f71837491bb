"""Stage `transfer@DEVICE`: judge the best candidates again on a device of another kind.

Runs only where a device of that name is: `cpu`, or a GPU's name in lower case with dashes. Results
of several machines meet as shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError
from cudal1.ledger import Ledger
from tasks.judging import admitted_problems, bench
from tasks.progress import progress
from tasks.stage import DATA, Stage, main


def judge_again(stage: Stage) -> Mapping[str, float | int]:
    """Best candidates of `filter` and `rl` → data/transfer/DEVICE.parquet."""
    wanted = stage.instance
    problems = {problem.id: problem for problem in admitted_problems()}
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with bench(ledger, stage.params) as known:
            if (here := device_name(known.device.kind)) != wanted:
                raise DeviceError(
                    f"{stage.name}: this machine judges on {here}; run this stage where {wanted} is"
                )
        # a protocol of its own: same rules, measured anew, so that the winners' luck is left behind
        anew = stage.params.protocol.model_copy(update={"seed": stage.params.protocol.seed + 1})
        rows = ledger.query(
            "winners", protocol_id=stage.params.protocol.id, stages=["filter", "rl"],
            count=stage.params.transfer.per_problem,
        ).to_dicts()  # fmt: skip
        chosen = [row for row in rows if row["problem_id"] in problems]
        params = stage.params.model_copy(update={"protocol": anew})
        again: list[float] = []
        with bench(ledger, params) as judge, progress("winners", len(chosen)) as advance:
            for row in chosen:
                problem = problems[row["problem_id"]]
                candidate = Candidate(problem_id=problem.id, source=row["source"])
                ledger.add_candidate(candidate)
                verdict = judge.verdict(problem, candidate)
                again.append(verdict.speedup or 0.0)
                advance(1)
        ledger.export()
        ledger.write_product(
            "transferred", DATA / "transfer" / f"{wanted}.parquet",
            stage=stage.name, protocol_id=anew.id,
        )  # fmt: skip
    return {"num_winners": len(chosen), "mean_certified": fmean(again) if again else 0.0}


def device_name(kind: str) -> str:
    """How a kind of device is written in params.yaml and file names."""
    return kind.lower().replace(" ", "-")


if __name__ == "__main__":
    main("transfer", judge_again)
