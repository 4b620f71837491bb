"""Compare the techniques that are read from CUDA-L1's released kernels with a person's reading.

python -m benchmarks.techniques --kernels ../CUDA-L1/optimized_cuda_code/a100.json

The labels are in `release.yaml`, by level and number of the problem. The author of the rules made
them. Nothing else of the release is in this repository.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.arguments import Parser
from cudal1.program.technique import Technique
from cudal1.program.techniques import techniques

LABELS = Path(__file__).with_name("release.yaml")
RESULT = Path(__file__).parents[1] / "results" / "techniques.json"


def main() -> None:
    """Print and write how far tags and labels agree."""
    parser = Parser(prog="python -m benchmarks.techniques", description=__doc__)
    parser.add_argument("--kernels", type=Path, required=True, help="a100.json of the release")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    with given.kernels.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    kernels = {f"L{row['level_id']}/{row['task_id']}": row for row in rows}
    groups = yaml.safe_load(LABELS.read_text(encoding="utf-8"))
    result: dict[str, Any] = {
        "benchmark": "techniques",
        "measured": datetime.now(UTC).date().isoformat(),
        **{name: compared(kernels, labels) for name, labels in groups.items()},
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for name in groups:
        print(name, {k: v for k, v in result[name].items() if k not in ("differing", "tags_by")})


def compared(
    kernels: Mapping[str, Mapping[str, Any]], labels: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return how far tags and labels of some kernels agree."""
    labelled, tagged, agreeing = Counter[str](), Counter[str](), Counter[str]()
    differing: dict[str, dict[str, list[str]]] = {}
    began = time.process_time()
    for key, said in labels.items():
        row, told = kernels[key], {Technique(each).value for each in said}
        found = {each.value for each in techniques(row["custom_code"], row["ref_code"])}
        labelled.update(told)
        tagged.update(found)
        agreeing.update(told & found)
        if told != found:
            differing[key] = {"extra": sorted(found - told), "missing": sorted(told - found)}
    took = time.process_time() - began
    return {
        "kernels": len(labels),
        "labels": labelled.total(),
        "tags": tagged.total(),
        "agreeing": agreeing.total(),
        "precision": round(agreeing.total() / tagged.total(), 3),
        "recall": round(agreeing.total() / labelled.total(), 3),
        "ms_a_kernel": round(1000 * took / len(labels), 1),
        "differing": differing,
        "tags_by": {
            each.value: {"labels": labelled[each], "tags": tagged[each], "agreeing": agreeing[each]}
            for each in Technique
            if labelled[each] or tagged[each]
        },
    }


if __name__ == "__main__":
    main()
