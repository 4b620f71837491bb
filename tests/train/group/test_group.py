"""Tests of training over two processes of one CPU: one world, one curve, one policy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import ConfigError, TrainingError
from cudal1.train.group import group
from cudal1.train.sft import Pair
from tests.train.runs import PROBLEMS, World, grpo, scale, sft

pytestmark = pytest.mark.slow


def loads(folder: Path) -> bool:
    from cudal1.train.policy import Sampler

    return bool(Sampler(folder).id)


@pytest.fixture(scope="module")
def trained(
    tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[World, list[tuple[int, Any]], Path]:
    """Make two steps over two processes."""
    world, folder = World(), tmp_path_factory.mktemp("grpo")
    return world, grpo(tiny_policy, folder, world), folder


def test_each_prompt_is_built_once(trained: tuple[World, Any, Path]) -> None:
    world, _, _ = trained
    assert sorted(world.built) == sorted((name, step) for step in (0, 1) for name in PROBLEMS)


def test_a_steps_answers_are_scored_together_in_whole_groups(
    trained: tuple[World, Any, Path],
) -> None:
    world, _, _ = trained
    assert [step for _, step in world.scored] == [0, 1]
    for ids, _ in world.scored:
        groups = [ids[first : first + 4] for first in range(0, 16, 4)]
        assert sorted(set(each).pop() for each in groups) == sorted(PROBLEMS)
        assert all(len(set(each)) == 1 for each in groups)


def test_trajectories_go_on_over_two_processes(tiny_policy: Path, tmp_path: Path) -> None:
    """Each process has two groups of two trajectories; their answers have one numbering."""
    world = World()
    logs = grpo(tiny_policy, tmp_path, world, turns=2)
    assert [step for step, values in logs if "loss" in values] == [1, 2]
    assert [(sorted(numbers), step) for numbers, step in world.refined] == [
        (list(range(8)), step) for step in (0, 1)
    ]
    assert world.follows == world.refined
    assert [len(ids) for ids, _ in world.scored] == [16, 16]


def test_each_step_is_logged_once(trained: tuple[World, list[tuple[int, Any]], Path]) -> None:
    _, logs, _ = trained
    assert [step for step, values in logs if "loss" in values] == [1, 2]


def test_a_group_leaves_a_plain_policy_and_a_whole_checkpoint(
    trained: tuple[World, Any, Path],
) -> None:
    _, _, folder = trained
    assert loads(folder / "out")
    state = json.loads((folder / "work" / "checkpoint-2" / "cudal1.json").read_text())
    assert state == {"num_scored": 2}


def test_a_group_continues_from_its_checkpoint(
    trained: tuple[World, Any, Path], tiny_policy: Path, tmp_path: Path
) -> None:
    _, _, folder = trained
    shutil.copytree(folder / "work", tmp_path / "work")
    world = World()
    logs = grpo(tiny_policy, tmp_path, world, steps=3)
    assert world.restored == {"num_scored": 2}
    assert {step for _, step in world.built} == {2}
    assert [step for step, values in logs if "loss" in values] == [3]


def test_an_error_of_the_world_ends_the_group_and_is_raised_here(
    tiny_policy: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no more"):
        grpo(tiny_policy, tmp_path, World(refuses=ConfigError("no more")))


def test_two_processes_learn_the_same_as_one(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    """The batches are the same; a pair's tokens have the same weight wherever they are computed."""
    (_, alone), (_, shared) = (
        sft(tiny_policy, tmp_path / name, pairs[:4], scale=each)
        for name, each in (("one", scale()), ("two", scale(processes=2, micro_batch=1)))
    )
    assert shared == pytest.approx(alone, rel=1e-3)
    assert loads(tmp_path / "two" / "out")


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes shard on a CPU, too (`tests.train.sharding`)."""
    made = group._command

    def command(*given: Any) -> list[str]:
        ours = {"cudal1.train.group.member": "tests.train.sharding"}
        return [ours.get(word, word) for word in made(*given)]

    monkeypatch.setattr(group, "_command", command)


def is_sharded(checkpoint: Path) -> bool:
    return (checkpoint / "pytorch_model_fsdp.bin").is_file()


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.usefixtures("shards")
def test_sharded_training_learns_the_same_and_leaves_whole_weights(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    (_, alone), (_, sharded) = (
        sft(tiny_policy, tmp_path / name, pairs[:4], scale=each)
        for name, each in (("one", scale()), ("two", scale(processes=2, sharded=True)))
    )
    assert is_sharded(tmp_path / "two" / "work" / "checkpoint-10")
    assert sharded == pytest.approx(alone, rel=1e-3)
    assert loads(tmp_path / "two" / "out")


@pytest.mark.usefixtures("shards")
def test_an_untied_output_layer_learns_the_same_in_shards_as_in_one_process(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    """The loss reads the layer's weights without calling it, of which PyTorch warns."""
    import torch
    from transformers import AutoModelForCausalLM

    untied: Any = AutoModelForCausalLM.from_pretrained(tiny_policy)
    untied.config.tie_word_embeddings = False
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight.detach().clone())
    policy = tmp_path / "untied"
    shutil.copytree(tiny_policy, policy)
    untied.save_pretrained(policy)
    for name, each in (("one", scale()), ("two", scale(processes=2, sharded=True))):
        sft(policy, tmp_path / name, pairs[:4], scale=each)
    alone, sharded = (weights(tmp_path / name / "out") for name in ("one", "two"))
    moved = (sharded["lm_head.weight"] - weights(policy)["lm_head.weight"]).abs()
    assert moved.max() > 1e-3
    for name, weight in alone.items():
        torch.testing.assert_close(sharded[name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("shards")
def test_sharded_processes_sample_answers_of_unequal_length(
    tiny_policy: Path, tmp_path: Path
) -> None:
    """A layer is gathered for each token: no process may stop before all have ended."""
    world = World()
    grpo(tiny_policy, tmp_path, world, scale=scale(processes=2, sharded=True), max_new_tokens=48)
    assert len(world.scored) == 2
    assert is_sharded(tmp_path / "work" / "checkpoint-2")
    assert loads(tmp_path / "out")


@pytest.mark.usefixtures("shards")
def test_a_stopped_sharded_group_continues_without_a_difference(
    tiny_policy: Path, tmp_path: Path
) -> None:
    """The stop is in the middle of an epoch; half of the problems have come."""
    import torch

    whole, stopped, resumed = World(), World(refuses=KeyboardInterrupt(), at=3), World()
    settings = {
        "scale": scale(processes=2, sharded=True),
        "steps": 5,
        "prompts_per_step": 2,
        "checkpoint_every": 3,
    }
    expected = grpo(tiny_policy, tmp_path / "whole", whole, **settings)
    with pytest.raises(KeyboardInterrupt):
        grpo(tiny_policy, tmp_path / "two", stopped, **settings)
    assert is_sharded(tmp_path / "two" / "work" / "checkpoint-3")
    resumed.built = stopped.built[:6]  # prompts say how many there were before
    logs = grpo(tiny_policy, tmp_path / "two", resumed, **settings)
    assert [step for step, values in logs if "loss" in values] == [4, 5]
    assert resumed.built == whole.built
    assert resumed.scored == whole.scored[3:]
    assert dict(logs)[4]["loss"] == pytest.approx(dict(expected)[4]["loss"], rel=1e-3)
    ours, theirs = weights(tmp_path / "two" / "out"), weights(tmp_path / "whole" / "out")
    first = weights(tiny_policy)
    assert ours.keys() == theirs.keys() == first.keys()  # tied weights are there once
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-4, atol=1e-5)
        assert (weight - first[name]).abs().max() > 1e-3


def test_one_of_our_own_failures_comes_back_as_its_line(tiny_policy: Path, tmp_path: Path) -> None:
    long: Pair = ([{"role": "user", "content": "say it"}], "matrix " * 300)
    with pytest.raises(TrainingError, match=r"^out: none of 1 training pairs fits in 128 tokens$"):
        sft(tiny_policy, tmp_path, [long], scale=scale(processes=2))


VICTIM = """
    import json, sys
    from pathlib import Path
    from tests.train.runs import World, grpo

    class Slow(World):
        def score(self, *given):
            print("scoring", flush=True)
            import time
            time.sleep(600)

    grpo(Path(sys.argv[1]), Path(sys.argv[2]), Slow())
"""


def test_a_group_ends_when_its_stage_is_killed(tiny_policy: Path, tmp_path: Path) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(VICTIM), str(tiny_policy), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "scoring\n"
    members = _with_variable("TMPDIR", str(tmp_path)) - {victim.pid}
    assert len(members) >= 2
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    deadline = time.monotonic() + 300
    while _with_variable("TMPDIR", str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _with_variable("TMPDIR", str(tmp_path)) == set()


def _with_variable(name: str, value: str) -> set[int]:
    """Return the processes that have the variable in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{name}={value}".encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def test_training_uses_the_last_gpus_and_leaves_the_first_to_verdicts() -> None:
    assert group.training_gpus(2, ["0", "1", "2", "3"]) == ["2", "3"]
    assert group.training_gpus(2, []) == []


def test_more_processes_than_gpus_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"scale\.processes: 4, but there are 2 GPUs"):
        group.training_gpus(4, ["0", "1"])


def test_an_absent_vllm_server_gives_one_line(tiny_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^rl\.vllm_server: http://127\.0\.0\.1:9 does not"):
        grpo(tiny_policy, tmp_path, World(), scale=scale(), vllm_server="http://127.0.0.1:9")
