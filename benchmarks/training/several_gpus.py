"""Compare training over two GPUs, whole (DDP) and in shards (FSDP2), with one GPU.

    python -m benchmarks.training.several_gpus [--tiny] [--out DIR]

The same pairs are learned on one GPU and over two, and the losses must be the same. Then answers
are sampled, rewarded and learned from (GRPO). For each run the result has the seconds, what was
logged, the most memory that a GPU had in use, and the estimate of `cudal1 training memory`. Memory
in use includes the CUDA context, NCCL's buffers and what PyTorch keeps for later, which the
estimate leaves out.

Weights are random, all of them are trained, and nothing is judged: the benchmark measures that
several GPUs learn the same, and what they hold. Needs two GPUs, torch, transformers, trl, peft,
datasets, accelerate, psutil and pydantic. `--tiny` is for a rehearsal, without a GPU, too.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import smi
from benchmarks.arguments import Parser
from benchmarks.common import ONE_PROCESS, RESULTS, note, print_table
from benchmarks.machine import cpu_name, versions
from benchmarks.training.big_policy import GIB, WORD, Even, Size, build
from cudal1.selection.reward import Advantage
from cudal1.settings import profiles
from cudal1.settings.scale import ScaleParams
from cudal1.train import memory
from cudal1.train.grpo import GrpoSettings, train_grpo
from cudal1.train.sft import Pair, SftSettings, train_sft

WAYS = {
    "one": ONE_PROCESS,
    "ddp": ONE_PROCESS.model_copy(update={"processes": 2}),
    "fsdp": ONE_PROCESS.model_copy(update={"processes": 2, "sharded": True}),
}
LARGE = {"num_hidden_layers": 4, "vocab_size": 8192}
"""Changes of the coder's architecture: layers as wide as its 28, 0.99 billion parameters in all."""
TINY = {
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SFT_STEPS = 10
SFT_BATCH = 8
SFT_TOKENS = 512
Logs = dict[int, dict[str, float]]


def main() -> None:
    """Measure each way, print the table, and write results/several_gpus.json."""
    parser = Parser(
        prog="python -m benchmarks.training.several_gpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tiny", action="store_true", help="a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    import torch
    from torch.cuda import nccl

    on_gpu = torch.cuda.is_available()
    if on_gpu and torch.cuda.device_count() != 2:
        sys.exit("two GPUs are compared; choose them with CUDA_VISIBLE_DEVICES")
    ready = profiles.load("coder-7b", profiles.TrainingProfile)
    architecture = {**ready.architecture, **(TINY if given.tiny else LARGE)}
    size = Size(prompts=2, group=4, prompt_tokens=128, answer_tokens=32 if given.tiny else 128)
    found: dict[str, Any] = {
        "benchmark": "several_gpus",
        "measured": time.strftime("%Y-%m-%d"),
        "device": [torch.cuda.get_device_name(i) for i in range(2)] if on_gpu else cpu_name(),
        "driver": smi.ask("driver_version"),
        "cpu": cpu_name(),
        "versions": versions("torch", "transformers", "trl", "accelerate"),
        "is_complete": False,
        "runs": {},
    }
    if on_gpu:
        found["nccl"] = ".".join(str(part) for part in nccl.version())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = memory.architecture_of(build(work / "policy", architecture, seed=1))
        torch.cuda.empty_cache()
        found["num_parameters"] = model.num_parameters
        for task, train in (("sft", learn), ("grpo", reinforce)):
            for way, scale in WAYS.items():
                note(f"{task}, {way}")
                found["runs"][f"{task}-{way}"] = {
                    **run(train, work, f"{task}-{way}", scale, size),
                    "expected_peak": expected(model, task, scale, size),
                }
                found["is_complete"] = len(found["runs"]) == 2 * len(WAYS)
                save(found, given.out)
    show(found)


def run(
    train: Callable[..., Logs], work: Path, name: str, scale: ScaleParams, size: Size
) -> dict[str, Any]:
    """Train; return the logs, seconds from call to return, and most bytes in use on each GPU."""
    started = time.monotonic()
    with smi.watched("memory.used", every_ms=100) as mib:
        logs = train(work, name, scale, size)
    return {
        "scale": scale.model_dump(mode="json"),
        "all_s": time.monotonic() - started,
        "logs": logs,
        "most_in_use": {index: max(seen) << 20 for index, seen in mib.items()},
        "saved": (work / name / "config.json").is_file(),
    }


def learn(work: Path, name: str, scale: ScaleParams, size: Size) -> Logs:
    """Learn some answers of random letters by heart."""
    letters, logs = random.Random(0), Logs()
    pairs: list[Pair] = [
        (
            [{"role": "user", "content": f"say {number}"}],
            "".join(letters.choices(string.ascii_lowercase, k=SFT_TOKENS - 64)),
        )
        for number in range(SFT_BATCH)
    ]
    train_sft(
        work / "policy",
        work / name,
        pairs,
        SftSettings(
            steps=SFT_STEPS,
            batch_size=SFT_BATCH,
            loss="nll",
            learning_rate=1e-4,
            warmup_steps=1,
            max_tokens=SFT_TOKENS,
            checkpoint_every=100 * SFT_STEPS,
            seed=3,
            scale=scale,
        ),
        work=work / f"{name}.work",
        on_log=_noted(logs),
    )
    return logs


def reinforce(work: Path, name: str, scale: ScaleParams, size: Size) -> Logs:
    """Take two steps of GRPO."""
    logs, world = Logs(), Even(WORD * (size.prompt_tokens - 32))
    train_grpo(
        work / "policy",
        work / name,
        [f"p{i}" for i in range(size.prompts)],
        world,
        GrpoSettings(
            steps=size.steps,
            prompts_per_step=size.prompts,
            group_size=size.group,
            learning_rate=1e-5,
            beta=0.02,
            epsilon=0.2,
            advantage=Advantage.NORMALIZED,
            entropy_coef=0.0,
            entropy_target=None,
            resamples=0,
            turns=1,
            mask_truncated=False,
            updates_per_batch=1,
            temperature=1.0,
            top_p=1.0,
            max_new_tokens=size.answer_tokens,
            checkpoint_every=100 * size.steps,
            keeps_checkpoints=False,
            seed=1,
            scale=scale,
            vllm_server=None,
        ),
        work=work / f"{name}.work",
        on_log=_noted(logs),
    )
    return logs


def _noted(logs: Logs) -> Callable[[int, Mapping[str, float]], None]:
    return lambda step, values: logs.setdefault(step, {}).update(values)


def expected(model: memory.Architecture, task: str, scale: ScaleParams, size: Size) -> int:
    """Return the estimated bytes on each GPU at the peak."""
    is_rl = task == "grpo"
    return memory.estimate(
        model,
        scale,
        memory.Work(
            rows=size.prompts * size.group if is_rl else SFT_BATCH,
            unit=size.group if is_rl else 1,
            tokens=size.prompt_tokens + size.answer_tokens if is_rl else SFT_TOKENS,
            samples=is_rl,
            has_reference=is_rl,
        ),
    ).peak


def save(found: Mapping[str, Any], out: Path) -> None:
    """Write the results so far."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1).replace(sys.prefix, ".")
    (out / "several_gpus.json").write_text(text + "\n", encoding="utf-8")


def show(found: Mapping[str, Any]) -> None:
    """Print the numbers that are compared."""
    rows: list[list[str]] = []
    for name, each in found["runs"].items():
        losses = [values["loss"] for values in each["logs"].values() if "loss" in values]
        rows.append(
            [
                name,
                f"{each['all_s']:.0f}",
                " ".join(f"{loss:.4f}" for loss in losses),
                f"{each['expected_peak'] / GIB:.1f}",
                " ".join(f"{used / GIB:.1f}" for used in each["most_in_use"].values()),
            ]
        )
    print(f"{found['num_parameters']:,} parameters")
    print_table(["run", "s in all", "losses", "GiB expected", "GiB in use, each GPU"], rows)


if __name__ == "__main__":
    main()
