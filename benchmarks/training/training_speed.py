"""Measure how much faster a policy learns here than with TRL as it comes.

python -m benchmarks.training.training_speed [--out DIR] [--device cuda] [--parts sampling sft grpo]

* sampling: a step's answers from the embedded policy, by `cudal1.train.sampling.rollouts` and by
  transformers' `generate`; on a GPU also whether both sides draw and learn the same.
* compiled (a GPU's, only when asked for): sampling, and by `generate` with its own fixed cache and
  compiler as well; the time that it compiles is not counted.
* sft: tokens (padding not counted) a second of supervised training, against SFTTrainer with its
  defaults, of a policy of five million random parameters on examples of 300 to 900 tokens.
* grpo: a step's wall time with the real harness, of epochs over a few problems, from a policy that
  stage 1 made (`benchmarks.training.grpo_steps`).

Both sides alternate in one run. What happens once, in a run's first steps, counts in grpo alone.
"""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common import ONE_PROCESS, chosen, note, options, print_table, save
from benchmarks.machine import versions
from benchmarks.training.grpo_steps import Size, World, as_json, our_steps, schooled, trl_steps
from benchmarks.training.sampling_speed import sampling
from cudal1.harness.device.device import Device
from cudal1.harness.device.facts import facts_of
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Split
from cudal1.protocol import EvalProtocol
from cudal1.suite import generator
from cudal1.train.checkpoints import log_callback, quiet, without_printing
from cudal1.train.policy import EMBEDDED
from cudal1.train.pretraining import Architecture, build_model
from cudal1.train.sft import Pair, SftSettings, train_sft

SIZES = {
    "cpu": Size(steps=3, prompts=2, group=8, problems=2),
    "cuda": Size(steps=6, prompts=2, group=8, problems=4),
}
"""Sizes of the runs: three epochs, as in the shipped run."""
SCHOOL_STEPS = {"cpu": 30, "cuda": 60}
REPEATS = {"cpu": 2, "cuda": 1}
SFT_STEPS = {"cpu": (5, 15), "cuda": (60, 160)}
"""Steps that are not counted, and all steps."""
SFT_REPEATS = {"cpu": 2, "cuda": 3}
BATCH = 8
LENGTHS = (300, 900)
FIVE_MILLION = Architecture(
    vocabulary=1280, hidden=256, layers=6, heads=4, kv_heads=2, mlp=768, context=4096
)
Numbers = dict[str, Any]


def main() -> None:
    """Measure, print a table, and write results/training_speed_DEVICE.json."""
    import torch

    parser = options("training_speed", __doc__)
    parser.set_defaults(device="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS)[:3])
    given = parser.parse_args()
    device, protocol = chosen(given)
    found: Numbers = {"versions": versions("transformers", "trl", "accelerate", "datasets")}
    for name in given.parts:
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = PARTS[name](given.device, device, protocol, Path(folder))
        except Exception as error:  # noqa: BLE001 - the other parts' numbers must not be lost
            traceback.print_exc()
            found[name] = {"failed": str(error)}
        note(f"{name}: {time.perf_counter() - started:.0f} s")
        save(f"training_speed_{given.device}", given.out, device, protocol, **found)
    rows = [row for part in found.values() for row in part.get("table", [])]
    print_table(["what", "TRL", "ours", "times as fast"], rows)


def _sft(kind: str, device: Device, protocol: EvalProtocol, folder: Path) -> Numbers:
    from transformers import AutoTokenizer

    quiet()
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED)
    policy = folder / "policy"
    model = build_model(tokenizer, FIVE_MILLION, seed=1)
    num_parameters = sum(weight.numel() for weight in model.parameters())
    model.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    pairs, lengths = _examples(tokenizer)
    rates: dict[str, list[float]] = {"ours": [], "TRL": []}
    for repeat in range(SFT_REPEATS[kind]):
        for side in (("ours", "TRL"), ("TRL", "ours"))[repeat % 2]:
            marks = _Marks(*SFT_STEPS[kind])
            SFT_SIDES[side](policy, pairs, marks, folder / f"{side}{repeat}")
            rates[side].append(marks.tokens_per_s)
            note(f"sft {side}: {rates[side][-1]:,.0f} tokens a second")
    ours, theirs = median(rates["ours"]), median(rates["TRL"])
    return {
        "num_parameters": num_parameters,
        "num_examples": len(pairs),
        "batch": BATCH,
        "lengths": [min(lengths), median(lengths), max(lengths)],
        "tokens_per_s": rates,
        "ratio": ours / theirs,
        "table": [["SFT, tokens a second", f"{theirs:,.0f}", f"{ours:,.0f}", _times(ours, theirs)]],
    }


class _Marks:
    """Times and tokens learned so far, which give the rate after the first steps."""

    def __init__(self, uncounted: int, steps: int) -> None:
        self.steps = steps
        self._uncounted = uncounted
        self._marks: list[tuple[float, float]] = []

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """Note the time and tokens of some finished steps."""
        if "loss" in values and step >= self._uncounted:
            self._marks.append((time.perf_counter(), values["num_tokens"]))

    @property
    def tokens_per_s(self) -> float:
        """Return the rate between the first and the last mark."""
        (began, before), (ended, after) = self._marks[0], self._marks[-1]
        return (after - before) / (ended - began)


def _our_sft(policy: Path, pairs: list[Pair], marks: _Marks, folder: Path) -> None:
    train_sft(
        policy,
        folder / "out",
        pairs,
        SftSettings(
            steps=marks.steps,
            batch_size=BATCH,
            loss="nll",
            learning_rate=1e-4,
            warmup_steps=0,
            max_tokens=1024,
            checkpoint_every=10**6,
            seed=3,
            scale=ONE_PROCESS,
        ),
        work=folder / "work",
        on_log=marks.on_log,
    )


def _trl_sft(policy: Path, pairs: list[Pair], marks: _Marks, folder: Path) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    machine: Numbers = {} if torch.cuda.is_available() else {"bf16": False, "use_cpu": True}
    rows = [
        {"prompt": list(prompt), "completion": [{"role": "assistant", "content": answer}]}
        for prompt, answer in pairs
    ]
    arguments = SFTConfig(
        output_dir=str(folder),
        max_steps=marks.steps,
        logging_steps=LOGGING_STEPS,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **machine,
    )
    assert arguments.per_device_train_batch_size == BATCH
    trainer: Any = SFTTrainer(
        model=str(policy),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(policy),
        callbacks=[log_callback(marks.on_log)],
    )
    without_printing(trainer).train()


SFT_SIDES: dict[str, Callable[[Path, list[Pair], _Marks, Path], None]] = {
    "ours": _our_sft,
    "TRL": _trl_sft,
}


def _examples(tokenizer: Any) -> tuple[list[Pair], list[int]]:
    """Return programs to be repeated, several to an example; and the examples' tokens."""
    rng = random.Random(7)
    sources = [
        problem.source
        for problem in generator.problems(
            200, seed=7, device_class=DeviceClass.CPU, split=Split.TRAIN
        )
    ]
    pairs: list[Pair] = []
    lengths: list[int] = []
    while len(pairs) < 512:
        text = "\n".join(rng.sample(sources, rng.choice((1, 1, 2))))
        pair: Pair = ([{"role": "user", "content": text}], text)
        length = len(tokenizer(text)["input_ids"]) * 2
        if LENGTHS[0] <= length <= LENGTHS[1]:
            pairs.append(pair)
            lengths.append(length)
    return pairs, lengths


def _grpo(kind: str, device: Device, protocol: EvalProtocol, folder: Path) -> Numbers:
    quiet()
    size, facts = SIZES[kind], facts_of(device)
    problems = generator.problems(
        size.problems, seed=31, device_class=device.device_class, split=Split.TRAIN
    )
    ids = [problem.id for problem in problems]
    steps: dict[str, list[Numbers]] = {"ours": [], "TRL": []}
    sides = {"ours": our_steps, "TRL": trl_steps}
    schooled(folder / "policy", facts, device.device_class, steps=SCHOOL_STEPS[kind])
    with Pool(device, protocol) as pool:
        for problem in problems:
            pool.reference_us(problem)
        for repeat in range(REPEATS[kind]):
            for side in (("ours", "TRL"), ("TRL", "ours"))[repeat % 2]:
                world = World(pool, problems, facts, reuses=side == "ours")
                sides[side](folder / "policy", world, ids, size, folder / f"{side}{repeat}")
                steps[side] += [as_json(step) for step in world.steps]
                note(f"grpo {side}: {fmean(s['wall_s'] for s in steps[side]):.2f} s a step")
    parts = ("wall_s", "generate_s", "judge_s", "train_s")
    mean = {
        side: {part: fmean(step[part] for step in mine) for part in parts}
        for side, mine in steps.items()
    }
    table = [
        [
            f"GRPO, {part.removesuffix('_s')} s a step",
            f"{mean['TRL'][part]:.2f}",
            f"{mean['ours'][part]:.2f}",
            _times(mean["TRL"][part], mean["ours"][part]),
        ]
        for part in parts
    ]
    judged = {side: sum(step["num_judged"] for step in mine) for side, mine in steps.items()}
    table.append(["GRPO, answers judged", str(judged["TRL"]), str(judged["ours"]), ""])
    return {
        "prompts": size.prompts,
        "group": size.group,
        "num_problems": size.problems,
        "steps": steps,
        "mean": mean,
        "table": table,
        "ratio": mean["TRL"]["wall_s"] / mean["ours"]["wall_s"],
    }


def _sampling(kind: str, device: Device, protocol: EvalProtocol, folder: Path) -> Numbers:
    return sampling(kind, device.device_class, facts_of(device), compiled=False)


def _compiled(kind: str, device: Device, protocol: EvalProtocol, folder: Path) -> Numbers:
    return sampling(kind, device.device_class, facts_of(device), compiled=True)


def _times(more: float, less: float) -> str:
    return f"{more / less:.2f}"


LOGGING_STEPS = 5
"""Steps between two logs, as in ours: TRL's default is 10."""
PARTS: dict[str, Callable[[str, Device, EvalProtocol, Path], Numbers]] = {
    "sampling": _sampling,
    "sft": _sft,
    "grpo": _grpo,
    "compiled": _compiled,
}

if __name__ == "__main__":
    main()
