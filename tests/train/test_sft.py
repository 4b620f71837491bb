"""Tests of supervised fine-tuning on a tiny model."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import TrainingError
from cudal1.train.checkpoints import latest_checkpoint
from cudal1.train.sft import Pair, SftSettings, train_sft
from tests.train.runs import scale

pytestmark = pytest.mark.slow

SETTINGS = {
    "batch_size": 4,
    "loss": "nll",
    "learning_rate": 0.01,
    "warmup_steps": 1,
    "max_tokens": 128,
    "checkpoint_every": 5,
    "seed": 3,
}


def losses_of(
    policy: Path, folder: Path, pairs: list[Pair], *, steps: int, **changed: Any
) -> dict[int, float]:
    """Train into `folder`/out; return the loss by step."""
    losses: dict[int, float] = {}

    def on_log(step: int, values: Mapping[str, float]) -> None:
        if "loss" in values:
            losses[step] = values["loss"]

    train_sft(
        policy,
        folder / "out",
        pairs,
        SftSettings(steps=steps, scale=scale(), **{**SETTINGS, **changed}),
        work=folder / "work",
        on_log=on_log,
    )
    return losses


def test_training_lowers_the_loss_and_leaves_only_a_policy(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    losses = losses_of(tiny_policy, tmp_path, pairs, steps=40)
    assert losses[40] < 0.5 * losses[5]
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert latest_checkpoint(tmp_path / "work") is not None


def test_a_policy_that_has_made_all_its_steps_makes_no_more_and_stays_the_same(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    """A stage may be killed in the work after its training. Seven steps end amid an epoch."""
    from safetensors.torch import load_file

    losses_of(tiny_policy, tmp_path, pairs, steps=7)
    made = load_file(tmp_path / "out" / "model.safetensors")
    shutil.rmtree(tmp_path / "out")
    assert losses_of(tiny_policy, tmp_path, pairs, steps=7) == {}
    whole = latest_checkpoint(tmp_path / "work")
    assert whole is not None
    assert whole.name == "checkpoint-7"
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert made.keys() == again.keys()
    assert all(made[name].equal(again[name]) for name in made)


def test_dft_weights_a_token_by_its_probability(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    """To an untrained policy all tokens are about equally likely, so both losses are known."""
    nll, dft = (
        losses_of(tiny_policy, tmp_path / loss, pairs, steps=5, loss=loss, learning_rate=1e-9)[5]
        for loss in ("nll", "dft")
    )
    assert dft == pytest.approx(nll * math.exp(-nll), rel=0.3)


def test_the_policy_gives_a_learned_answer(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    from cudal1.train.policy import Sampler

    prompt, answer = pairs[0]
    losses_of(tiny_policy, tmp_path, pairs[:1], steps=60)
    (sampled,) = Sampler(tmp_path / "out").sample(
        [prompt], temperature=0.01, top_p=1.0, max_new_tokens=32, seed=1, batch_size=1
    )
    assert (sampled.text, sampled.finish_reason) == (answer, "stop")


def test_long_pairs_are_counted_and_left_out(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    long: Pair = ([{"role": "user", "content": "say it"}], "matrix " * 300)
    num_long = train_sft(
        tiny_policy,
        tmp_path / "out",
        [*pairs, long],
        SftSettings(steps=1, scale=scale(), **SETTINGS),
        work=tmp_path / "work",
        on_log=lambda step, values: None,
    )
    assert num_long == 1


def test_pairs_that_are_all_too_long_give_an_error_of_one_line(
    tiny_policy: Path, tmp_path: Path
) -> None:
    long: Pair = ([{"role": "user", "content": "say it"}], "matrix " * 300)
    with pytest.raises(TrainingError, match=r"^out: none of 1 training pairs fits in 128 tokens$"):
        losses_of(tiny_policy, tmp_path, [long], steps=1)


VICTIM = """
    import json, os, signal, sys
    from pathlib import Path
    from cudal1.train.sft import SftSettings, train_sft
    from tests.train.runs import scale

    policy, folder, killed_at, pairs, settings = json.loads(sys.stdin.read())

    def on_log(step, values):
        if step == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    train_sft(
        Path(policy), Path(folder, "out"), pairs,
        SftSettings(steps=20, scale=scale(), **settings),
        work=Path(folder, "work"), on_log=on_log,
    )
"""


def test_training_continues_from_the_last_whole_checkpoint_after_a_kill(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    import json

    from safetensors.torch import load_file

    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    losses = losses_of(tiny_policy, undisturbed, pairs, steps=20)
    victim = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(VICTIM)],
        check=False,
        text=True,
        input=json.dumps([str(tiny_policy), str(killed), 15, pairs, SETTINGS]),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    whole = latest_checkpoint(killed / "work")
    assert whole is not None
    assert whole.name == "checkpoint-10"
    # as a kill leaves it in the middle of saving
    (killed / "work" / "checkpoint-15").mkdir()
    (killed / "work" / "checkpoint-15" / "model.safetensors").write_bytes(b"half")
    resumed = losses_of(tiny_policy, killed, pairs, steps=20)
    assert set(resumed) == {15, 20}
    assert resumed[20] == pytest.approx(losses[20], rel=1e-3)
    expected = load_file(undisturbed / "out" / "model.safetensors")
    found = load_file(killed / "out" / "model.safetensors")
    assert all(found[name].allclose(expected[name], atol=1e-4) for name in expected)
