"""Loading policies and sampling from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cudal1.errors import TrainingError
from cudal1.extract import extract
from cudal1.problem import DeviceClass, Split
from cudal1.prompt import PromptStyle, generation_prompt
from cudal1.suite import generator
from cudal1.train.policy import EMBEDDED, Chat, Sampled, Sampler, bring, fingerprint

HELDOUT = generator.problems(4, seed=9001, device_class=DeviceClass.CPU, split=Split.HELDOUT)
HELLO: Chat = [{"role": "user", "content": "say matrix"}]


@pytest.fixture(scope="module")
def embedded() -> Sampler:
    return Sampler(EMBEDDED)


def sample(sampler: Sampler, chats: list[Chat], *, seed: int = 1) -> list[Sampled]:
    return sampler.sample(
        chats, temperature=1.0, top_p=1.0, max_new_tokens=24, seed=seed, batch_size=4
    )


def test_most_answers_of_the_embedded_policy_are_code_that_compiles(embedded: Sampler) -> None:
    chats = [generation_prompt(p, style=PromptStyle.COMPACT).as_chat() for p in HELDOUT]
    answers = embedded.sample(
        chats * 2, temperature=0.7, top_p=1.0, max_new_tokens=320, seed=1, batch_size=8
    )
    sources = [extract(answer.text).source for answer in answers if answer.finish_reason == "stop"]
    written = [source for source in sources if source is not None and "class ModelNew" in source]
    assert len(written) >= 6
    for source in written[:4]:
        compile(source, "answer", "exec")


def test_the_embedded_tokenizer_gives_text_back_unchanged() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    for text in (*(problem.source for problem in HELDOUT), "naïve — 10\t000 ≤ x\r\n\n"):
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(tokens) == text


def test_the_embedded_policy_says_how_it_was_made() -> None:
    import json

    note = json.loads((EMBEDDED / "pretraining.json").read_text(encoding="utf-8"))
    assert note["generator_version"] == generator.GENERATOR_VERSION
    assert {"settings", "steps_made", "device", "torch"} <= set(note)


def test_a_seed_gives_the_same_answers_and_another_seed_others(tiny_policy: Path) -> None:
    sampler = Sampler(tiny_policy)
    chats = [HELLO] * 6
    assert sample(sampler, chats) == sample(sampler, chats)
    assert sample(sampler, chats) != sample(sampler, chats, seed=2)


def test_answers_come_in_the_order_of_their_prompts(tiny_policy: Path) -> None:
    sampler = Sampler(tiny_policy)
    chats: list[Chat] = [[{"role": "user", "content": "say " * n}] for n in (9, 2, 7, 4, 8, 1)]
    answers = sample(sampler, chats)
    assert [answer.num_prompt_tokens for answer in answers] == [
        sampler.num_tokens(chat) for chat in chats
    ]


def test_an_answer_that_is_cut_says_so(tiny_policy: Path) -> None:
    answers = sample(Sampler(tiny_policy), [HELLO] * 8)
    cut = [answer for answer in answers if answer.num_completion_tokens == 24]
    assert cut
    assert {answer.finish_reason for answer in cut} == {"length"}


def test_a_brought_folder_is_the_same_policy(tiny_policy: Path, tmp_path: Path) -> None:
    bring(str(tiny_policy), tmp_path / "base", revision=None)
    assert fingerprint(tmp_path / "base") == fingerprint(tiny_policy)


def test_other_weights_are_another_policy(tiny_policy: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_policy, tmp_path / "other")
    weights = tmp_path / "other" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert fingerprint(tmp_path / "other") != fingerprint(tiny_policy)


def test_a_folder_without_a_policy_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingError, match=r"empty: holds no policy \(config.json is missing\)$"):
        Sampler(tmp_path / "empty")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "replaced"])
def test_a_damaged_folder_is_an_error_of_one_line(
    tiny_policy: Path, tmp_path: Path, file: str, damage: str
) -> None:
    shutil.copytree(tiny_policy, tmp_path / "broken")
    path = tmp_path / "broken" / file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"\x00\xff" * 20)
    with pytest.raises(TrainingError) as caught:
        Sampler(tmp_path / "broken")
    assert "broken: cannot be loaded" in str(caught.value)
    assert "\n" not in str(caught.value)
