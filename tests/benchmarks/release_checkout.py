"""Write a small checkout of our own making, in the format of the authors' repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.inner(x))


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
"""
NORM = REFERENCE.replace("nn.Linear(width, width)", "nn.BatchNorm1d(width, affine=False)")
"""A reference that computes something else in evaluation mode."""


def candidate(body: str, *, before: str = "", inner: str = "nn.Linear(width, width)") -> str:
    """Return a module with that body of `forward`; its weights are drawn as the reference's are."""
    return (
        "import torch\nimport torch.nn as nn\n\n"
        f"{before}\n\n"
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        f"        self.inner = {inner}\n\n"
        "    def forward(self, x):\n"
        f"        {body}\n"
    )


RIGHT = candidate("return self.inner(x).clamp(min=0.0)")
WRONG = candidate("return self.inner(x)")
DIES = candidate("import os; os.abort()")
IN_EVAL = candidate("return torch.relu(x * (1 + 1e-5) ** -0.5)", inner="nn.Identity()")
"""A candidate that equals `NORM` in evaluation mode: it uses the statistics of a new module."""


def row(level: int, number: int, code: str | None, **others: Any) -> dict[str, Any]:
    """Return a line of a GPU kind's file."""
    claim = None if code is None else 2.0
    return {
        "level_id": level,
        "task_id": number,
        "ref_code": REFERENCE,
        "custom_code": code,
        "score_default": claim,
        "score_cuda_graph": claim and 1.6,
        **others,
    }


ROWS = [row(1, 1, RIGHT), row(1, 2, WRONG), row(1, 3, DIES), row(1, 4, None)]


def write(folder: Path, rows: list[dict[str, Any]], graphs: Mapping[tuple[int, int], str]) -> Path:
    """Write a checkout with a file of the kind `h100`."""
    kernels, baseline = folder / "optimized_cuda_code", folder / "more_baselines"
    kernels.mkdir(parents=True)
    baseline.mkdir()
    _lines(kernels / "h100.json", rows)
    _lines(
        baseline / "cuda_graph.json",
        [{"level_id": level, "task_id": n, "code": code} for (level, n), code in graphs.items()],
    )
    return folder


def _lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
