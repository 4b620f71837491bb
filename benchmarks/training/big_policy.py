"""Take real GRPO steps with a policy as large as a profile's, and compare memory and estimate.

    python -m benchmarks.training.big_policy [--profile coder-7b] [--layers N] [--out DIR]

Its weights are random, in the architecture of the profile; its adapter, precision and checkpointing
are the profile's, on one device. Answers never end by themselves, so all have the full length. The
reward is the share of even letters of an answer: memory and time are measured, not skill.

Needs torch, transformers, trl, peft, datasets and pydantic.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1.selection.reward import Advantage
from cudal1.settings import profiles
from cudal1.settings.scale import ScaleParams
from cudal1.train import memory
from cudal1.train.grpo import GrpoSettings, train_grpo
from cudal1.train.policy import config_of
from cudal1.train.pretraining import Architecture, build_tokenizer

RESULTS = Path(__file__).parents[1] / "results"
GIB = 1 << 30
WORD = "matrix "


@dataclass(frozen=True)
class Size:
    """The size of the run; the profile's own would take longer than a measurement may."""

    steps: int = 2
    prompts: int = 2
    group: int = 8
    prompt_tokens: int = 2048
    answer_tokens: int = 512


class Even:
    """An environment that rewards even letters, and notes when it is asked."""

    judges_meanwhile = False

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self.asked_at: list[float] = []

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return the same long prompt, which begins with the problem's name."""
        return [{"role": "user", "content": f"{problem_id} {self._prompt}"}]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Do nothing; answers are judged when they are scored."""

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the share of letters with an even code."""
        self.asked_at.append(time.monotonic())
        return [sum(ord(c) % 2 == 0 for c in text) / max(1, len(text)) for text in texts]

    def state(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing."""


def build(folder: Path, architecture: Mapping[str, Any], *, seed: int) -> Any:
    """Save a random policy of that architecture in bfloat16; return its configuration."""
    import torch
    from transformers import AutoModelForCausalLM

    small = Architecture(
        vocabulary=320,
        hidden=0,
        layers=0,
        heads=0,
        kv_heads=0,
        mlp=0,
        context=int(architecture["max_position_embeddings"]),
    )
    tokenizer = build_tokenizer([WORD * 8], small)
    config = config_of(
        {
            **architecture,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        }
    )
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return config


def steps(profile: str, size: Size, work: Path, *, layers: int | None = None) -> dict[str, Any]:
    """Take the steps; return memory in bytes, time in seconds."""
    import torch

    ready = profiles.load(profile, profiles.TrainingProfile)
    depth = layers or int(ready.architecture["num_hidden_layers"])
    scale = ScaleParams.model_validate({**ready.params["scale"], "processes": 1})
    started = time.monotonic()
    config = build(work / "policy", {**ready.architecture, "num_hidden_layers": depth}, seed=1)
    built_s = time.monotonic() - started
    model = memory.architecture_of(config)
    expected = memory.estimate(
        model,
        scale,
        memory.Work(
            rows=size.prompts * size.group,
            unit=size.group,
            tokens=size.prompt_tokens + size.answer_tokens,
            samples=True,
            has_reference=True,
        ),
    )
    world, logs = Even(WORD * (size.prompt_tokens - 32)), dict[int, dict[str, float]]()
    peaks: list[int] = []

    def on_log(step: int, values: Mapping[str, float]) -> None:
        logs.setdefault(step, {}).update(values)
        if torch.cuda.is_available() and "loss" in values:
            peaks.append(torch.cuda.max_memory_allocated())

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    train_grpo(
        work / "policy",
        work / "out",
        [f"p{i}" for i in range(size.prompts)],
        world,
        GrpoSettings(
            steps=size.steps,
            prompts_per_step=size.prompts,
            group_size=size.group,
            learning_rate=ready.params["rl"]["learning_rate"],
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
            checkpoint_every=size.steps,
            keeps_checkpoints=False,
            seed=1,
            scale=scale,
            vllm_server=None,
        ),
        work=work / "work",
        on_log=on_log,
    )
    return {
        "num_parameters": model.num_parameters,
        "layers": depth,
        "size": asdict(size),
        "scale": scale.model_dump(mode="json"),
        "built_s": built_s,
        "all_s": time.monotonic() - started,
        "steps": {n: logs[n] for n in sorted(logs)},
        "num_scored": len(world.asked_at),
        "expected": {**expected.parts(), "peak": expected.peak},
        "measured_peak": peaks[-1] if peaks else None,
    }


def main() -> None:
    """Measure, print and write the result."""
    import torch

    parser = Parser(
        prog="python -m benchmarks.training.big_policy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--profile", default="coder-7b")
    parser.add_argument("--layers", type=int, help="fewer than the profile's")
    parser.add_argument("--answer-tokens", type=int, default=Size.answer_tokens)
    parser.add_argument("--prompt-tokens", type=int, default=Size.prompt_tokens)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    size = Size(answer_tokens=given.answer_tokens, prompt_tokens=given.prompt_tokens)
    with tempfile.TemporaryDirectory() as folder:
        found = steps(given.profile, size, Path(folder), layers=given.layers)
    on_gpu = torch.cuda.is_available()
    found |= {
        "benchmark": "big_policy",
        "profile": given.profile,
        "measured": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(0) if on_gpu else cpu_name(),
        "versions": versions("torch", "transformers", "trl", "peft", "accelerate"),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1).replace(sys.prefix, ".")
    (given.out / "big_policy.json").write_text(text + "\n", encoding="utf-8")
    show(found)


def show(found: Mapping[str, Any]) -> None:
    """Print the numbers that are compared."""
    print(f"{found['num_parameters']:,} parameters, {len(found['steps'])} steps logged")
    for name, value in found["expected"].items():
        print(f"expected {name:<12} {value / GIB:8.2f} GiB")
    measured = found["measured_peak"]
    if measured is None:
        print("measured peak: no GPU here")
    else:
        ratio = measured / found["expected"]["peak"]
        print(f"measured peak         {measured / GIB:8.2f} GiB, {ratio:.2f} of the expected")
    print(f"seconds: built {found['built_s']:.0f}, all {found['all_s']:.0f}")


if __name__ == "__main__":
    main()
