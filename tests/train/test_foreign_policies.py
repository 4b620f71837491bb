"""Tests that policies of other families pass through everything that ours does, tiny and random."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import TrainingError
from cudal1.extract.extract import extract
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import DeviceFacts, PromptStyle, answer_text, generation_prompt
from cudal1.settings.params import Params
from cudal1.suite.loader import load_suite
from cudal1.train.policy import (
    Sampler,
    bring,
    declared_end_ids,
    fingerprint,
    rendered,
    tokenizer_of,
)
from cudal1.train.sft import Pair
from cudal1.train.trainable import Asked, faults
from tests.train.foreign import FAMILIES
from tests.train.runs import World, grpo, scale, sft

pytestmark = pytest.mark.slow

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")
FACTS = DeviceFacts(
    device="CPU", architecture="x86_64", memory="8 GiB", cuda_version="none", torch_version="2"
)
LORA = scale(adapter={"rank": 4, "alpha": 8})


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each for each in load_suite(DeviceClass.CPU) if each.split is Split.TRAIN]


@pytest.fixture(scope="module", params=FAMILIES)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    return FAMILIES[request.param](tmp_path_factory.mktemp("foreign") / request.param)


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def tuned(
    policy: Path, pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[int, float]]:
    folder = tmp_path_factory.mktemp("tuned")
    _, losses = sft(policy, folder, pairs, steps=80, learning_rate=0.02)
    return folder / "out", losses


def test_stage_rl_can_train_it(policy: Path, problems: list[Problem]) -> None:
    lengths = PARAMS.policy.model_copy(update={"max_prompt_tokens": 2000})
    params = PARAMS.model_copy(update={"policy": lengths})
    rl = PARAMS.rl.model_copy(update={"num_exemplars": 1})
    assert faults(policy, params, {"rl": rl}, Asked(problems)) == []


@pytest.mark.parametrize("style", PromptStyle)
def test_a_prompt_holds_the_whole_problem_and_ends_where_an_answer_begins(
    policy: Path, problems: list[Problem], style: PromptStyle
) -> None:
    tokenizer = tokenizer_of(policy)
    chat = generation_prompt(problems[0], style=style, facts=FACTS).as_chat()
    prompt = tokenizer.decode(rendered(tokenizer, chat))
    assert problems[0].source.strip() in prompt
    answered = [*chat, {"role": "assistant", "content": "ANSWER"}]
    whole = tokenizer.apply_chat_template(answered, tokenize=False)
    assert whole.startswith(f"{prompt}ANSWER")


def test_an_answer_is_given_back_as_the_same_program(policy: Path, problems: list[Problem]) -> None:
    tokenizer = tokenizer_of(policy)
    for problem in problems:
        ids = tokenizer(answer_text(problem.as_candidate), add_special_tokens=False)["input_ids"]
        source = extract(tokenizer.decode(ids, skip_special_tokens=True)).source
        assert source is not None
        assert program_id(source) == program_id(problem.as_candidate), problem.key


def test_the_loss_falls_and_an_answer_that_was_learnt_ends(
    tuned: tuple[Path, dict[int, float]], pairs: list[Pair]
) -> None:
    folder, losses = tuned
    assert losses[80] < losses[5]
    chats = [prompt for prompt, _ in pairs]
    answers = Sampler(folder).sample(
        chats, temperature=0.0, top_p=1.0, max_new_tokens=40, seed=1, batch_size=8
    )
    assert {answer.finish_reason for answer in answers} == {"stop"}


def test_training_keeps_template_and_end_tokens(
    policy: Path, tuned: tuple[Path, dict[int, float]]
) -> None:
    assert set(declared_end_ids(tuned[0])) == set(declared_end_ids(policy))
    before, after = (tokenizer_of(folder) for folder in (policy, tuned[0]))
    assert before.chat_template == after.chat_template
    assert before.eos_token == after.eos_token


def test_an_adapter_is_merged_into_a_whole_policy(
    policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    sft(policy, tmp_path, pairs, scale=LORA, steps=2)
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert Sampler(tmp_path / "out").id != fingerprint(policy)


@pytest.mark.parametrize("at", [scale(), LORA], ids=["full", "lora"])
def test_reinforcement_takes_steps(policy: Path, tmp_path: Path, at: Any) -> None:
    world = World()
    logs = grpo(policy, tmp_path, world, scale=at)
    assert len(world.scored) >= 2
    assert any("loss" in values for _, values in logs)
    assert Sampler(tmp_path / "out").id != fingerprint(policy)


def test_a_killed_training_goes_on_from_its_checkpoint(
    policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    often: dict[str, Any] = {"steps": 8, "checkpoint_every": 4}
    sft(policy, whole, pairs, **often)
    shutil.copytree(whole / "work" / "checkpoint-4", halved / "work" / "checkpoint-4")
    _, losses = sft(policy, halved, pairs, **often)
    assert set(losses) == {5}
    for name, expected in weights(whole / "out").items():
        assert weights(halved / "out")[name].allclose(expected, atol=1e-4), name


def test_a_hub_folder_is_brought_as_it_is(policy: Path, tmp_path: Path) -> None:
    bring(str(policy), tmp_path / "base", revision=None)
    assert fingerprint(tmp_path / "base") == fingerprint(policy)


def test_a_name_that_is_neither_folder_nor_hub_id_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="neither a local folder nor a model") as caught:
        bring(str(tmp_path / "absent"), tmp_path / "base", revision=None)
    assert "\n" not in str(caught.value)
