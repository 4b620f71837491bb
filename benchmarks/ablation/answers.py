"""Keep the score of each exam answer in one small file that makes the tables again.

A state also has sources, verdicts and training, and is too large to keep in the repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation import table
from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Plan


def shrink(plan: Plan, states: Sequence[Path]) -> dict[str, Any]:
    """Return the finished exams: batch by batch problem, speedup, and 1 for a copy."""
    problems: dict[str, int] = {}
    exams: dict[str, dict[str, list[tuple[int, float, int]]]] = {}
    for row in plan.rows:
        for group in plan.exam.groups:
            for seed, diary in table.finished(plan, states, row, group).items():
                exams[f"{row.value}-{seed}/{group.value}"] = {
                    batch: [
                        (
                            problems.setdefault(each.problem_id, len(problems)),
                            each.score,
                            int(each.is_copy),
                        )
                        for each in found
                    ]
                    for batch, found in diary.batches.items()
                }
    return {"problems": list(problems), "exams": exams}


def restore(content: Mapping[str, Any], state: Path) -> None:
    """Write such exams to an otherwise empty state; a copy is stored as an exemplar of itself."""
    for name, batches in content["exams"].items():
        diary = Diary(state / "exams" / f"{name}.jsonl")
        for batch, answers in batches.items():
            found = [
                Found(
                    problem_id=content["problems"][problem],
                    candidate_id="copy" if is_copy else None,
                    score=score,
                    born=None,
                    island=None,
                    exemplar_ids=("copy",) if is_copy else (),
                    num_tokens=0,
                )
                for problem, score, is_copy in answers
            ]
            diary.add(batch, found)
