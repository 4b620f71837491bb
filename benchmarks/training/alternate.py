"""Test that a policy and the judges share a machine as `device.sharing` says, and at what cost.

python -m benchmarks.training.alternate [--device cuda] [--steps 3] [--each 8] [--problems 4]

A policy of random weights writes answers, which are not read. Meanwhile candidates of shipped
problems are put on a judging queue, one problem after the other, as a training step does. Then the
policy trains on what it wrote.

Checked: every candidate has one verdict; where policy and judges take turns, no verdict comes while
the policy works; and each step's verdicts do not change what the policy writes. Printed: the use of
each step's time. The exit code is 1 when a check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Device, note, options, print_table, save, shipped
from benchmarks.judging.throughput import KINDS
from cudal1.candidate import Candidate
from cudal1.harness.device.sharing import sharing
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.judging_queue import JudgingQueue
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.services.stopwatch import Part, Stopwatch
from cudal1.settings import protocols
from cudal1.verdict import Verdict

WIDTH, LAYERS, VOCABULARY, CONTEXT = 384, 6, 2048, 512
"""Sizes of the policy: some ten million parameters, as the embedded one."""
BATCH, NEW_TOKENS = 64, 128
PARTS = ("generate_s", "build_s", "judge_s", "train_s", "rest_s", "step_s")


class Policy:
    """A policy that writes tokens and learns them."""

    def __init__(self, device: Device) -> None:
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM

        torch.manual_seed(0)
        place = "cuda:0" if device.device_class is DeviceClass.CUDA else "cpu"
        config = Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=WIDTH // 64,
            num_key_value_heads=WIDTH // 64,
            head_dim=64,
            intermediate_size=3 * WIDTH,
            max_position_embeddings=CONTEXT,
            eos_token_id=None,
            bos_token_id=None,
            pad_token_id=0,
        )
        model: Any = Qwen3ForCausalLM(config)
        self._model = model.to(place)
        self._optimiser = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._prompts = torch.randint(1, VOCABULARY, (BATCH, 64), device=place)

    def write(self) -> Any:
        """Write greedily, so that the tokens can be compared."""
        return (
            self._model.eval()
            .generate(self._prompts, max_new_tokens=NEW_TOKENS, do_sample=False)
            .cpu()
        )

    def learn(self, written: Any) -> float:
        """Make one update on what it wrote; return the loss."""
        tokens = written.to(self._prompts.device)
        loss = self._model.train()(tokens, labels=tokens).loss
        loss.backward()
        self._optimiser.step()
        self._optimiser.zero_grad()
        return float(loss.detach())


class Kept:
    """The verdicts that the judging queue settles, with their times."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.twice = 0
        self.judge_s = self.build_s = 0.0

    def settle(self, _: Problem, candidate: Candidate, judgement: Judgement) -> Verdict:
        """Take a judgement in."""
        self.twice += candidate.id in self.at
        self.at[candidate.id] = time.monotonic()
        self.judge_s += judgement.prepare_s + judgement.verdict.judge_s - judgement.build_s
        self.build_s += judgement.build_s
        return judgement.verdict


def main() -> None:
    """Run, check, print a table, and write results/alternate_DEVICE.json."""
    parser = options("alternate", __doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--each", type=int, default=8, help="candidates of a problem and step")
    parser.add_argument("--problems", type=int, default=4, help="problems of a step")
    given = parser.parse_args()
    shared = sharing(DeviceClass(given.device), num_policies=1)
    protocol = protocols.load(given.protocol or given.device)
    note(
        f"{len(shared.devices)} judge, {'beside' if shared.is_beside else 'in turn with'} a policy"
    )
    steps, complaints = _run(given, protocol)
    save(
        f"alternate_{given.device}",
        given.out,
        shared.devices[0],
        protocol,
        steps=steps,
        is_beside=shared.is_beside,
        num_judges=len(shared.devices),
        complaints=complaints,
    )
    print_table(
        ["step", "judged", *PARTS, "idle"],
        [
            [
                str(i),
                str(step["num_judged"]),
                *(f"{step[part]:.2f}" for part in PARTS),
                f"{step['idle']:.0%}",
            ]
            for i, step in enumerate(steps)
        ],
    )
    for line in complaints:
        print(line)
    sys.exit(bool(complaints))


def _run(
    given: argparse.Namespace, protocol: EvalProtocol
) -> tuple[list[dict[str, float]], list[str]]:
    shared, kept = sharing(DeviceClass(given.device), num_policies=1), Kept()
    problems = shipped(shared.devices[0])
    policy, watch = Policy(shared.devices[0]), Stopwatch(shared)
    steps: list[dict[str, float]] = []
    complaints: list[str] = []
    with (
        tempfile.TemporaryDirectory() as builds,
        JudgingQueue(
            shared, protocol, kept.settle, record_of=lambda *_: None, builds=Path(builds), wait_s=60
        ) as judging_queue,
    ):
        work = KINDS["mixed"](problems, given.each * given.steps)
        for number in range(given.steps):
            watch.restart()
            before_s, asked = (kept.judge_s, kept.build_s), set[str]()
            written: Any = None
            for name in list(work)[: given.problems]:
                began = time.monotonic()
                written = policy.write()
                ended = time.monotonic()
                watch.lap(Part.GENERATE)
                early = [at for at in kept.at.values() if began < at < ended]
                if early and not shared.is_beside:
                    complaints.append(f"step {number}: {len(early)} verdicts beside the policy")
                for source in work[name][number * given.each : (number + 1) * given.each]:
                    candidate = Candidate(problem_id=problems[name].id, source=source)
                    asked.add(candidate.id)
                    judging_queue.add(problems[name], candidate)
                watch.lap(Part.OWN)
            found = judging_queue.collect()
            watch.lap(Part.VERDICTS)
            if set(found) != asked:
                complaints.append(f"step {number}: {len(asked)} asked, {len(found)} verdicts")
            again = policy.write()
            watch.lap(Part.GENERATE)
            if not bool((again == written).all()):
                complaints.append(f"step {number}: the policy writes otherwise after the verdicts")
            policy.learn(written)
            watch.lap(Part.TRAIN)
            numbers = watch.numbers(
                judge_s=kept.judge_s - before_s[0], build_s=kept.build_s - before_s[1]
            )
            steps.append({**numbers, "num_judged": len(found)})
            note(f"step {number}: {len(found)} verdicts in {numbers['step_s']:.1f} s")
    if kept.twice:
        complaints.append(f"{kept.twice} candidates were judged twice")
    return steps, complaints


if __name__ == "__main__":
    main()
