"""Stage `problems`: load the suite, reject what cannot be judged, hash the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cudal1.errors import ConfigError, SuiteError
from cudal1.harness.admission import known_references
from cudal1.harness.admission.admission import Check, probe_all
from cudal1.harness.device.device import find_device
from cudal1.harness.schedule.pools import require_working
from cudal1.ledger import Ledger
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.settings.params import Params, ProblemsParams
from cudal1.suite import (
    generator,
    kernelbench,
    kernelbench_split,
    kernelbook,
    loader,
    robust_kbench,
)
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main


def load_problems(stage: Stage) -> Mapping[str, float | int]:
    """params.problems → data/problems.parquet, with the reason beside each rejected problem."""
    device = find_device(stage.params.device)  # fails here, not hours later
    problems = _distinct(_source(stage.params))
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        num_admitted = num_killed = 0
        check = Check(stage.params.protocol, device)
        with progress("problems", len(problems)) as advance:
            tried = probe_all(
                problems,
                max_reference_ms=stage.params.problems.max_reference_ms,
                check=check,
                known=known_references.of_this_user(),
            )
            for problem, probe in tried:
                if probe.reason is not None:
                    require_working(device)  # raises if the device is the reason
                admission = probe.admission_if_told_apart
                ledger.add_problem(problem, admission)
                if probe.kill_table is not None:
                    ledger.add_kill_table(probe.kill_table)
                    num_killed += sum(each.killed is True for each in probe.kill_table.mutants)
                num_admitted += admission.admitted
                if not admission.admitted:
                    log.warning("problems: %s rejected: %s", problem.key, admission.reason)
                advance(1)
        if num_admitted == 0:
            raise SuiteError("no problem was admitted; the reasons are above")
        ledger.export()
        ledger.write_product("problems", DATA / "problems.parquet")
    heldout = sum(problem.split is Split.HELDOUT for problem in problems)
    return {
        "num_problems": len(problems),
        "num_admitted": num_admitted,
        "num_rejected": len(problems) - num_admitted,
        "num_heldout": heldout,
        "num_mutants_killed": num_killed,
    }


def _source(params: Params) -> list[Problem]:
    section = params.problems
    found = _suite(section, params.device)
    chosen = [problem for problem in found if problem.level in section.levels]
    for split, count in (
        (Split.TRAIN, section.generated_train),
        (Split.HELDOUT, section.generated_heldout),
    ):
        chosen += generator.problems(
            count,
            seed=section.generated_seed,
            device_class=params.device,
            split=split,
            num_stages=section.generated_operations,
            num_knobs=section.generated_knobs,
        )
    return chosen


def _suite(section: ProblemsParams, device_class: DeviceClass) -> list[Problem]:
    path = Path(section.path) if section.path else None
    heldout = kernelbench_split.heldout() if section.split == "published" else ()
    match section.source:
        case "shipped":
            return loader.load_suite(device_class)
        case "kernelbench":
            return kernelbench.load(
                path,
                revision=section.revision,
                sizes=Path(section.sizes) if section.sizes else None,
                device_class=device_class,
                heldout=heldout,
                largest_trained=section.largest_trained,
            )
        case "robust-kbench":
            if path is None:
                raise ConfigError("problems.path: name a checkout of robust-kbench")
            return robust_kbench.load(
                path, device_class=device_class, named="problems.path", heldout=heldout
            )
        case "kernelbook":
            return kernelbook.load(
                path, revision=section.revision, device_class=device_class, named="problems.path"
            )


def _distinct(problems: list[Problem]) -> list[Problem]:
    """Return the problems without those that repeat the source of an earlier one."""
    return list({problem.id: problem for problem in reversed(problems)}.values())[::-1]


if __name__ == "__main__":
    main("problems", load_problems)
