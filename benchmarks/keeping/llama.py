"""Prove versions of parts of a Llama block, apply them, and time the block before and after.

python -m benchmarks.keeping.llama [--hidden 256] [--inside 768] [--tokens 64] [--rounds 200]

The parts are transformers' own classes, imported by the problems' files: `LlamaRMSNorm` and
`LlamaMLP`. Their versions are judged under `drop_in` and `mode: eval`, as `cudal1 judge` would, and
kept only where they are certified to be faster. Then a decoder layer with fresh weights is called
with and without them, in turns: the outputs' largest difference, and both medians.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import cudal1
from benchmarks.common import chosen, note, options, print_table, save
from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error
from cudal1.kept import Kept, class_source_id
from cudal1.protocol import Contract, EvalProtocol, Mode
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.services.checking.here import Here
from cudal1.suite.loader import load_file

MODULE = "transformers.models.llama.modeling_llama"
NORM_PROBLEM = """import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm as Model


def get_inputs():
    return [torch.randn(1, {tokens}, {hidden})]


def get_init_inputs():
    return [{hidden}, 1e-6]
"""
NORM = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
"""
MLP_PROBLEM = """import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP


class Model(LlamaMLP):
    def __init__(self, hidden, inside):
        super().__init__(LlamaConfig(hidden_size=hidden, intermediate_size=inside))


def get_inputs():
    return [torch.randn(1, {tokens}, {hidden})]


def get_init_inputs():
    return [{hidden}, {inside}]
"""
MLP = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, hidden, inside):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inside, bias=False)
        self.up_proj = nn.Linear(hidden, inside, bias=False)
        self.down_proj = nn.Linear(inside, hidden, bias=False)

    def forward(self, x):
        gate = nn.functional.silu(self.gate_proj(x), inplace=True)
        return self.down_proj(gate.mul_(self.up_proj(x)))
"""
PARTS = {"LlamaRMSNorm": (NORM_PROBLEM, NORM), "LlamaMLP": (MLP_PROBLEM, MLP)}
TRIES = 3
"""Verdicts on a part, at most, until one certifies a gain."""


def main() -> None:
    """Prove, apply, time, print a table, and write results/apply_llama_cpu.json."""
    parser = options("keeping.llama", __doc__)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--inside", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--wait", type=float, default=600.0, help="seconds for a busy device")
    given = parser.parse_args()
    device, protocol = chosen(given)
    with tempfile.TemporaryDirectory(prefix="cudal1-llama-") as made:
        parts = prove(Path(made), given, protocol)
        block = timed(Path(made), given) if any(row["is_kept"] for row in parts) else None
    save(
        f"apply_llama_{given.device}",
        given.out,
        device,
        protocol,
        sizes={"hidden": given.hidden, "inside": given.inside, "tokens": given.tokens},
        load=os.getloadavg()[0],
        parts=parts,
        block=block,
    )
    print_table(
        ["part", "certified", "kept"],
        [[row["part"], f"{row['certified']}", str(row["is_kept"])] for row in parts],
    )
    note(f"block: {block}")


def prove(folder: Path, given: argparse.Namespace, protocol: EvalProtocol) -> list[dict[str, Any]]:
    """Write a record of each part that is certified to be faster; return what became of each."""
    changes = {"contract": Contract.DROP_IN, "mode": Mode.EVAL}
    under = protocol.model_copy(update=changes)
    rows: list[dict[str, Any]] = []
    sizes = {"hidden": given.hidden, "inside": given.inside, "tokens": given.tokens}
    limits = {"max_reference_ms": 1000.0, "time_limit_s": 60.0}
    with Here(chosen(given)[0].device_class, wait_s=given.wait, **limits) as here:
        for part, (problem_text, source) in PARTS.items():
            name = part.lower()
            (folder / f"{name}.py").write_text(problem_text.format(**sizes), encoding="utf-8")
            problem = load_file(folder / f"{name}.py", device_class=here.device.device_class)
            candidate = Candidate(problem_id=problem.id, source=source)
            verdict = None
            for _ in range(TRIES):
                try:
                    verdict = here.judge(problem, candidate, under).verdict
                except CudaL1Error as error:
                    note(f"{part}: {error}")
                    break
                note(f"{part}: {verdict.status} {verdict.reason} {verdict.speedup}")
                if (verdict.speedup or 0.0) > 1.0:
                    break
            is_kept = verdict is not None and (verdict.speedup or 0.0) > 1.0
            rows.append(
                {
                    "part": part,
                    "status": verdict and str(verdict.status),
                    "certified": verdict and verdict.speedup,
                    "estimate": verdict and verdict.measurement and verdict.measurement.speedup,
                    "is_kept": is_kept,
                }
            )
            if verdict is None or not is_kept:
                continue
            proof = keeping.proof_of(
                problem,
                f"{name}.py",
                verdict,
                device=here.device,
                protocol=under,
                inputs=(f"float32[1, {given.tokens}, {given.hidden}]",),
            )
            kept = Kept(
                version=f"{name}.faster.py",
                candidate_source_id=content_id(source),
                replaces=f"{MODULE}:{part}",
                replaces_source_id=class_source_id(inspect.getsource(of_transformers(part))),
                proofs=(proof,),
            )
            records.write(folder, name, source, kept)
    return rows


def of_transformers(part: str) -> Any:
    """Return a class of transformers' Llama."""
    from transformers.models.llama import modeling_llama

    return getattr(modeling_llama, part)


def block_of(given: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return a decoder layer with fresh weights, and the arguments of a call."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    config = LlamaConfig(
        hidden_size=given.hidden,
        intermediate_size=given.inside,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_hidden_layers=1,
        vocab_size=128,
    )
    model = llama.LlamaModel(config).eval()
    states = torch.randn(1, given.tokens, given.hidden)
    places = torch.arange(given.tokens)[None]
    embeddings = model.rotary_emb(states, places)
    return model.layers[0], {"hidden_states": states, "position_embeddings": embeddings}


@torch.no_grad()
def timed(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return the medians of a block's calls with and without versions, in turns."""
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)  # as it was judged
    block, named = block_of(given)
    expected = block(**named)
    us: dict[str, list[float]] = {"original": [], "applied": []}
    applied = cudal1.apply(block, folder)
    block(**named)
    off = (block(**named) - expected).abs().max().item()
    dispatchers = {name: module.forward for name, module in block.named_modules()}
    for _ in range(given.rounds):
        for side in us:
            for name in applied.swapped:
                module = block.get_submodule(name)
                if side == "applied":
                    module.forward = dispatchers[name]
                else:
                    vars(module).pop("forward", None)
            began = time.perf_counter_ns()
            block(**named)
            us[side].append((time.perf_counter_ns() - began) / 1000)
    medians = {side: median(taken) for side, taken in us.items()}
    return {
        "swapped": dict(applied.swapped),
        "refused": [line.replace(str(folder), ".") for line in applied.refused],
        "largest_difference": off,
        "original_us": round(medians["original"], 1),
        "applied_us": round(medians["applied"], 1),
        "speedup": round(medians["original"] / medians["applied"], 3),
    }


if __name__ == "__main__":
    main()
