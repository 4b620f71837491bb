"""Count the mutants that the check kills, with families inside a problem's domain and outside.

python -m benchmarks.judging.kill_rates [--checkout DIR] [--suites shipped kernelbench]
                                        [--levels 1 2 3]

Families of inputs stay inside what a problem's generator promises (`cudal1.harness.inputs.domain`).
To measure the cost of that, the mutants of each problem's kill table are tried twice: with families
that stay *inside*, as problems are admitted and candidates judged, and with families that go
*anywhere*, regardless of domains.

KernelBench's problems come from a checkout, of which nothing is copied: those that are admitted, in
the sizes in which they are (`results/kernelbench_admission_cpu.json`). One process tries problems,
one after the other. Another one replaces it after sixteen problems, or when it died. Tries are kept
beside the result until all are done; a run that was stopped goes on there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.ablation.memory import Lines
from benchmarks.common import RESULTS, chosen, machine, note, options, print_table, shipped
from benchmarks.kernelbench.admission import loaded
from cudal1.errors import CudaL1Error
from cudal1.harness.admission.mutants import examine
from cudal1.harness.device.device import Device
from cudal1.harness.oracle.oracle import Oracle
from cudal1.kill_table import KillTable
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

SUITES = ("shipped", "kernelbench")
TRIED_BY_ONE = 16
"""Problems that one process tries: modules of references stay in its memory."""
Row = dict[str, Any]


def main() -> None:
    """Try, print the tables, and write results/kill_rates_DEVICE.json."""
    parser = options("kill_rates", __doc__)
    parser.add_argument("--checkout", type=Path, help="of KernelBench")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3], help="of KernelBench")
    given = parser.parse_args()
    if "kernelbench" in given.suites and given.checkout is None:
        sys.exit("name a --checkout of KernelBench, or only --suites shipped")
    file: Path = given.out / f"kill_rates_{given.device}.json"
    try:
        device, protocol = chosen(given)
        problems = list(_problems(given.suites, given.checkout, given.levels, device))
        tries = Lines(file.with_suffix(".tries.jsonl"))
        rows = try_all(problems, protocol, device, tries)
    except CudaL1Error as error:
        sys.exit(str(error))
    summaries = [summary(suite, level, rows) for suite, level in sorted(places(rows))]
    found = {
        "benchmark": file.stem,
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
        "protocol_id": protocol.id,
        "stages": list(protocol.correctness_stages),
        "precision": protocol.precision,
        "suites": summaries,
        "problems": rows,
    }
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tries.path.unlink()
    show(summaries, rows)


def _problems(
    suites: Sequence[str], checkout: Path | None, levels: Sequence[int], device: Device
) -> Iterator[Problem]:
    """Yield the problems of the suites that are admitted, each in its sizes."""
    if "shipped" in suites:
        yield from shipped(device).values()
    if checkout is None or "kernelbench" not in suites:
        return
    seen = json.loads((RESULTS / f"kernelbench_admission_{device.device_class}.json").read_text())
    in_sizes = loaded(checkout, device.device_class, None, levels)
    for row in seen["problems"]:
        if row["admitted"] and row["level"] in levels:
            yield next(
                each
                for each in in_sizes[row["largest"]]
                if (each.level, each.number) == (row["level"], row["number"])
            )


def try_all(
    problems: Sequence[Problem], protocol: EvalProtocol, device: Device, tries: Lines
) -> list[Row]:
    """Return a row for each problem, in order; those in `tries` are not tried again."""
    known: dict[str, Row] = {line["problem_id"]: line for line in tries}
    new = [each for each in problems if each.id not in known]
    for problem, tried in _tried(new, partial(_try, protocol, device)):
        row: Row = {
            "problem_id": problem.id,
            "problem": problem.key,
            "suite": problem.suite,
            "level": problem.level,
            **tried,
        }
        known[problem.id] = row
        tries.add(row)
        note(f"{problem.key}: {row['inside']}")
    return [known[problem.id] for problem in problems]


def _tried(
    problems: Sequence[Problem], attempt: Callable[[Problem], Row]
) -> Iterator[tuple[Problem, Row]]:
    """Yield each try's result from another process; a try that ends it has that as its result."""
    left = list(problems)
    while left:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            for problem in left[:TRIED_BY_ONE]:
                try:
                    yield problem, pool.submit(attempt, problem).result()
                except BrokenExecutor:
                    died = {"reason": "ends the process that tries it"}
                    yield problem, {"invariants": [], "inside": died, "anywhere": died}
                    left = left[left.index(problem) + 1 :]
                    break
            else:
                left = left[TRIED_BY_ONE:]


def _try(protocol: EvalProtocol, device: Device, problem: Problem) -> Row:
    """Return what holds, and the fate of the mutants with either kind of families.

    It runs in a process of its own.
    """
    import torch

    from cudal1.harness.inputs import draws
    from cudal1.harness.inputs.domain import Domain
    from cudal1.harness.oracle import oracle

    torch.set_num_threads(1)
    inside = _table(protocol, device, problem)
    find, draws.domain_of = draws.domain_of, lambda _: Domain()
    oracle._known.clear()  # otherwise what was learned inside would hold
    try:
        anywhere = _table(protocol, device, problem)
    finally:
        draws.domain_of = find
    held, _ = inside.pop("invariants"), anywhere.pop("invariants")
    return {"invariants": held, "inside": inside, "anywhere": anywhere}


def _table(protocol: EvalProtocol, device: Device, problem: Problem) -> Row:
    import torch

    try:
        place = torch.device(device.torch_name)
        oracle = Oracle(
            problem, weight_seed=protocol.seed, device=place, precision=protocol.precision
        )
        table, _ = examine(problem, protocol, device, oracle.traits)
    except CudaL1Error as error:
        return {"invariants": [], "reason": str(error)}
    return {"invariants": list(table.invariants), **counts(table, oracle.families)}


def counts(table: KillTable, families: Sequence[str]) -> Row:
    """Return the numbers of mutants that apply and are noticed, and the mean inputs until then."""
    applied = [each for each in table.mutants if each.killed is not None]
    after = [each.num_inputs for each in applied if each.killed and each.num_inputs]
    return {
        "num_families": len(families),
        "num_applied": len(applied),
        "num_killed": len(after),
        "mean_inputs": round(sum(after) / len(after), 2) if after else None,
        "survivors": [each.name for each in table.survivors],
        "num_killed_by_own": sum(each.family == "own" for each in applied),
        "reason": table.refused_reference,
    }


def places(rows: Sequence[Row]) -> set[tuple[str, int]]:
    """Return suites and levels."""
    return {(row["suite"], row["level"]) for row in rows}


def summary(suite: str, level: int, rows: Sequence[Row]) -> Row:
    """Return the fate of the mutants of a level of a suite, inside domains and anywhere."""
    mine = [row for row in rows if (row["suite"], row["level"]) == (suite, level)]
    wheres = ("inside", "anywhere")
    tried = [row for row in mine if all("num_killed" in row[where] for where in wheres)]
    found: Row = {
        "suite": suite,
        "level": level,
        "num_problems": len(mine),
        "num_tried": len(tried),
        "num_with_invariants": sum(bool(row["invariants"]) for row in tried),
    }
    for where in wheres:
        tables = [row[where] for row in tried]
        found[where] = {
            "num_applied": sum(table["num_applied"] for table in tables),
            "num_killed": sum(table["num_killed"] for table in tables),
            "num_with_survivors": sum(bool(table["survivors"]) for table in tables),
        }
    return found


def show(summaries: Sequence[Row], rows: Sequence[Row]) -> None:
    """Print both tables: by level, and the problems of which something holds."""
    header = ["suite", "problems", "with invariants", "mutants killed inside", "anywhere"]
    print_table(
        header,
        [
            [
                f"{each['suite']} level {each['level']}",
                str(each["num_tried"]),
                str(each["num_with_invariants"]),
                *(_share(each[where]) for where in ("inside", "anywhere")),
            ]
            for each in summaries
        ],
    )
    print()
    held = [row for row in rows if row["invariants"]]
    print_table(
        ["problem", "what holds", "families inside", "anywhere", "killed inside", "anywhere"],
        [
            [
                row["problem"],
                " | ".join(row["invariants"]),
                *(str(row[w].get("num_families")) for w in ("inside", "anywhere")),
                *(_share(row[where]) for where in ("inside", "anywhere")),
            ]
            for row in held
        ],
    )


def _share(table: Row) -> str:
    if "num_killed" not in table:
        return str(table["reason"])
    return f"{table['num_killed']} of {table['num_applied']}"


if __name__ == "__main__":
    main()
