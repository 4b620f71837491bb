"""Tests of loading policies and of sampling from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from cudal1.errors import TrainingError
from cudal1.extract.extract import extract
from cudal1.problem import DeviceClass, Split
from cudal1.prompts.prompt import PromptStyle, generation_prompt
from cudal1.suite import generator
from cudal1.train.policy import EMBEDDED, Chat, Sampled, Sampler, bring, fingerprint, token_counter
from cudal1.train.sampling import draws

HELDOUT = generator.problems(4, seed=9001, device_class=DeviceClass.CPU, split=Split.HELDOUT)
HELLO: Chat = [{"role": "user", "content": "say matrix"}]


@pytest.fixture(scope="module")
def embedded() -> Sampler:
    return Sampler(EMBEDDED)


def sample(
    sampler: Sampler, chats: list[Chat], *, seed: int | list[int] = 1, **changes: Any
) -> list[Sampled]:
    how: dict[str, Any] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "max_new_tokens": 24,
        "batch_size": 4,
        **changes,
    }
    return sampler.sample(chats, seed=seed, **how)


def ragged() -> list[Chat]:
    """Return prompts of the embedded policy's kind, of different lengths."""
    return [generation_prompt(p, style=PromptStyle.COMPACT).as_chat() for p in HELDOUT]


def tokens_of(answer: Sampled) -> list[int]:
    """Return the embedded policy's tokens of an answer, with the end token."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED)
    tokens = tokenizer(answer.text, add_special_tokens=False)["input_ids"]
    return tokens + [tokenizer.eos_token_id] * (answer.finish_reason == "stop")


def told_apart(chat: Chat, answer: Sampled) -> tuple[list[int], torch.Tensor]:
    """Return an answer's tokens, and their log-probabilities under the model, by a slow loop."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype="float32").eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED)
    text = tokenizer.apply_chat_template(list(chat), add_generation_prompt=True, tokenize=False)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokens = tokens_of(answer)
    rows = []
    with torch.inference_mode():
        for end in range(len(tokens)):
            logits = model(torch.tensor([prompt + tokens[:end]])).logits[0, -1]
            rows.append(logits.log_softmax(-1))
    return tokens, torch.stack(rows)


def drawn(
    scores: list[float], uniforms: torch.Tensor, *, temperature: float = 1.0, top_p: float = 1.0
) -> list[int]:
    """Return the token that each uniform number draws from one row of scores."""
    scores_BV = torch.tensor([scores] * len(uniforms))
    return draws.drawn(scores_BV, uniforms, temperature=temperature, top_p=top_p).tolist()


EVENLY = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
PROBS = [0.1, 0.5, 0.15, 0.25]


@pytest.mark.slow
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


def test_the_embedded_policy_documents_how_it_was_made() -> None:
    note = json.loads((EMBEDDED / "pretraining.json").read_text(encoding="utf-8"))
    assert note["generator_version"] == generator.GENERATOR_VERSION
    assert {"settings", "steps_made", "device", "torch"} <= set(note)


def test_one_seed_gives_the_same_answers_and_another_seed_gives_others(tiny_policy: Path) -> None:
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


def test_prompts_are_measured_without_the_weights(tiny_policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(tiny_policy, folder)
    (folder / "model.safetensors").unlink()
    count, sampler = token_counter(folder), Sampler(tiny_policy)
    assert [count(chat) for chat in ragged()] == [sampler.num_tokens(chat) for chat in ragged()]
    with pytest.raises(TrainingError, match="holds no policy"):
        token_counter(tmp_path)


def test_a_truncated_answer_has_the_reason_length(tiny_policy: Path) -> None:
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


def test_a_folder_without_a_policy_gives_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingError, match=r"empty: holds no policy \(config.json is missing\)$"):
        Sampler(tmp_path / "empty")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "replaced"])
def test_a_damaged_folder_gives_an_error_of_one_line(
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


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.3])
def test_logprobs_equal_those_of_a_slow_loop_at_any_temperature(
    embedded: Sampler, temperature: float
) -> None:
    chats = ragged()
    answers = sample(
        embedded, chats, temperature=temperature, top_p=0.9, max_new_tokens=12, with_logprobs=True
    )
    num_compared = 0
    for chat, answer in zip(chats, answers, strict=True):
        tokens, logprobs = told_apart(chat, answer)
        assert answer.logprobs is not None
        assert len(answer.logprobs) == answer.num_completion_tokens
        if len(tokens) == answer.num_completion_tokens:  # else drawn in other pieces than ours
            num_compared += 1
            expected = [row[token].item() for row, token in zip(logprobs, tokens, strict=True)]
            assert list(answer.logprobs) == pytest.approx(expected, abs=1e-4)
    assert num_compared >= 3


def test_logprobs_are_left_out_unless_requested(tiny_policy: Path) -> None:
    assert {answer.logprobs for answer in sample(Sampler(tiny_policy), [HELLO] * 3)} == {None}


def test_requesting_logprobs_changes_no_answer(tiny_policy: Path) -> None:
    sampler = Sampler(tiny_policy)
    plain, curious = (sample(sampler, [HELLO] * 6, with_logprobs=w) for w in (False, True))
    assert [answer.text for answer in plain] == [answer.text for answer in curious]


@pytest.mark.slow
def test_the_end_token_counts(embedded: Sampler) -> None:
    answers = sample(
        embedded, ragged()[:2], temperature=0.0, max_new_tokens=320, with_logprobs=True
    )
    for answer in answers:
        assert answer.finish_reason == "stop"
        assert answer.num_completion_tokens == len(answer.logprobs or ())
        assert answer.num_completion_tokens == len(tokens_of(answer))


def test_an_answer_ends_at_any_token_that_the_model_declares(
    tiny_policy: Path, tmp_path: Path
) -> None:
    whole = sample(Sampler(tiny_policy), [HELLO], max_new_tokens=12)[0]
    assert whole.num_completion_tokens > 1
    changed = tmp_path / "changed"
    shutil.copytree(tiny_policy, changed)
    settings = json.loads((changed / "generation_config.json").read_text())
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_policy)
    settings["eos_token_id"] = list(range(len(tokenizer)))
    (changed / "generation_config.json").write_text(json.dumps(settings))
    ended = sample(Sampler(changed), [HELLO], max_new_tokens=12)[0]
    assert (ended.text, ended.finish_reason, ended.num_completion_tokens) == ("", "stop", 1)


def test_a_policy_without_an_end_token_is_refused(tiny_policy: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(tiny_policy, changed)
    for name, key in (("generation_config.json", "eos_token_id"), ("config.json", "eos_token_id")):
        settings = json.loads((changed / name).read_text())
        settings.pop(key, None)
        (changed / name).write_text(json.dumps(settings))
    settings = json.loads((changed / "tokenizer_config.json").read_text())
    settings.pop("eos_token", None)
    (changed / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(TrainingError, match="no end token"):
        Sampler(changed)


@pytest.mark.slow
def test_the_likeliest_token_is_taken_without_temperature(embedded: Sampler) -> None:
    chat = ragged()[0]
    (answer,) = sample(embedded, [chat], temperature=0.0, max_new_tokens=12)
    tokens, logprobs = told_apart(chat, answer)
    assert tokens == logprobs.argmax(-1).tolist()


def test_an_answer_does_not_depend_on_its_batch(tiny_policy: Path) -> None:
    sampler = Sampler(tiny_policy)
    chats: list[Chat] = [[{"role": "user", "content": "say " * n}] for n in (9, 2, 7, 4, 8, 1)]
    seeds = [5, 6, 7, 8, 9, 10]
    together = sample(sampler, chats, seed=seeds, batch_size=6)
    alone = [
        sample(sampler, [chat], seed=[seed])[0] for chat, seed in zip(chats, seeds, strict=True)
    ]
    assert together == alone


def test_equal_chats_with_equal_seeds_get_equal_answers(tiny_policy: Path) -> None:
    first, second, third = sample(Sampler(tiny_policy), [HELLO] * 3, seed=[1, 1, 2])
    assert first == second
    assert first != third


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    tokens = drawn([torch.tensor(p).log().item() for p in PROBS], EVENLY)
    assert [tokens.count(token) for token in range(4)] == [100, 500, 150, 250]


def test_temperature_divides_the_scores() -> None:
    scores = [0.0, 1.0, 2.0]
    assert drawn(scores, EVENLY, temperature=0.5) == drawn([2 * s for s in scores], EVENLY)


@pytest.mark.parametrize("temperature", [0.0, 1e-30])
def test_a_temperature_near_zero_takes_the_likeliest_token(temperature: float) -> None:
    assert set(drawn([3.0, 90.0, -70.0], EVENLY, temperature=temperature)) == {1}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.01, {1}), (0.5, {1}), (0.51, {1, 3}), (0.76, {1, 2, 3})]
)
def test_top_p_keeps_the_fewest_likeliest_tokens_that_reach_it(
    top_p: float, kept: set[int]
) -> None:
    scores = [torch.tensor(p).log().item() for p in PROBS]
    assert set(drawn(scores, EVENLY, top_p=top_p)) == kept


def test_an_impossible_token_is_never_drawn() -> None:
    edges = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert drawn([float("-inf"), 0.0, 0.0, float("-inf")], edges) == [1, 2]


def test_sampling_settings_of_a_folder_are_ignored(tiny_policy: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_policy, tmp_path / "opinionated")
    path = tmp_path / "opinionated" / "generation_config.json"
    opinions = {"do_sample": True, "top_k": 1, "temperature": 0.1, "repetition_penalty": 9.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), **opinions}))
    here, there = Sampler(tiny_policy), Sampler(tmp_path / "opinionated")
    assert sample(here, [HELLO] * 4) == sample(there, [HELLO] * 4)


@pytest.mark.slow
def test_a_policy_can_be_identified_without_loading_it(tiny_policy: Path) -> None:
    assert Sampler.fingerprint(tiny_policy) == Sampler(tiny_policy).id
