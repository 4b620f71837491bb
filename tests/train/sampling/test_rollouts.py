"""Tests of our sampling against transformers' `generate`, on a small model."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from cudal1.train.sampling.attention import GROUPED, attend_in_groups, is_plain
from cudal1.train.sampling.draws import DrawingProcessor, FreshDraw, GivenDraw
from cudal1.train.sampling.rollouts import Rollouts

VOCABULARY, PAD, END = 61, 0, 1
PROMPTS = ((5, 9, 13, 2), (7, 3), (5, 9, 13, 2), (40, 41, 42, 43, 44, 45, 46), (7, 3))
"""Prompts of different lengths; some are equal."""


class Watched:
    """A model that records the scores of each call's last position."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.scores: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **inputs: Any) -> Any:
        made = self._model(**inputs)
        self.scores.append(made.logits[:, -1].clone())
        return made


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=48,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    made = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(4)
    return made.eval()


def rollouts(*, temperature: float = 1.0, top_p: float = 1.0, max_new_tokens: int = 24) -> Rollouts:
    draw = FreshDraw(temperature=temperature, top_p=top_p)
    return Rollouts(draw, max_new_tokens=max_new_tokens, end_ids=[END], pad_id=PAD)


def generated(model: Any, prompts: Any, **settings: Any) -> list[list[int]]:
    """Return the answers of transformers' `generate` to the same prompts."""
    import torch

    width = max(map(len, prompts))
    tokens = torch.tensor([[PAD] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    made = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        max_new_tokens=24,
        top_k=0,
        pad_token_id=PAD,
        eos_token_id=END,
        **settings,
    )
    return [cut(row) for row in made[:, width:].tolist()]


def cut(row: list[int]) -> list[int]:
    return row[: row.index(END) + 1] if END in row else row


def test_the_likeliest_tokens_equal_those_of_generate(model: Any) -> None:
    greedy = rollouts(top_p=1e-6).sample(model, PROMPTS)
    assert greedy == generated(model, PROMPTS, do_sample=False)
    assert greedy[0] == greedy[2] != greedy[3]


def test_attending_in_groups_gives_the_same_scores(model: Any) -> None:
    import torch

    grouped = copy.deepcopy(model)
    attend_in_groups(grouped)
    assert (grouped.config._attn_implementation, is_plain(model)) == (GROUPED, True)
    seen = [Watched(model), Watched(grouped)]
    answers = [rollouts(top_p=1e-6).sample(each, PROMPTS) for each in seen]
    assert answers[0] == answers[1]
    assert len(seen[0].scores) > 1
    for one, other in zip(*(each.scores for each in seen), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_sampling_under_autocast_equals_generate(model: Any) -> None:
    """accelerate wraps each forward pass on a GPU so; roundings may part the two after a while."""
    import torch

    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        ours = rollouts(top_p=1e-6).sample(model, PROMPTS)
        theirs = generated(model, PROMPTS, do_sample=False)
    assert [tokens[:2] for tokens in ours] == [tokens[:2] for tokens in theirs]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (1.5, 0.5)])
def test_tokens_of_equal_random_numbers_equal_those_of_generate(
    model: Any, temperature: float, top_p: float
) -> None:
    import torch

    torch.manual_seed(11)
    expected = generated(model, PROMPTS, do_sample=True, temperature=temperature, top_p=top_p)
    torch.manual_seed(11)
    assert rollouts(temperature=temperature, top_p=top_p).sample(model, PROMPTS) == expected
    assert len(set(map(tuple, expected))) == len(PROMPTS)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (1.0, 1.0), (0.7, 0.9)])
def test_answers_of_given_numbers_equal_those_of_generate(
    model: Any, temperature: float, top_p: float
) -> None:
    import torch
    from transformers import LogitsProcessorList

    uniforms = torch.rand((24, len(PROMPTS)), dtype=torch.float64)
    ours, theirs = (GivenDraw(temperature=temperature, top_p=top_p) for _ in range(2))
    ours.give(uniforms)
    mine = Rollouts(ours, max_new_tokens=24, end_ids=[END], pad_id=PAD).sample(model, PROMPTS)
    theirs.give(uniforms)
    theirs.reserve(len(PROMPTS), 24, "cpu")
    theirs.begin()
    processor = LogitsProcessorList([DrawingProcessor(theirs)])
    expected = generated(model, PROMPTS, do_sample=False, logits_processor=processor)
    assert mine == expected
    for answer, a, b in zip(mine, ours.logprobs(), theirs.logprobs(), strict=True):
        assert a[: len(answer)] == pytest.approx(b[: len(answer)], abs=1e-4)


def test_a_later_call_draws_by_its_own_numbers_and_may_have_fewer_answers(model: Any) -> None:
    import torch

    draw = GivenDraw(temperature=1.0, top_p=1.0)
    sampler = Rollouts(draw, max_new_tokens=24, end_ids=[END], pad_id=PAD)
    uniforms = torch.rand((24, len(PROMPTS)), dtype=torch.float64)
    draw.give(uniforms)
    first = sampler.sample(model, PROMPTS)
    draw.give(1 - uniforms[:, :2])
    assert sampler.sample(model, PROMPTS[:2]) != first[:2]
    draw.give(uniforms[:, :2])
    assert sampler.sample(model, PROMPTS[:2]) == first[:2]
    assert len(draw.logprobs()) == 2


def test_each_answer_is_reported_when_it_has_ended(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("cudal1.train.sampling.rollouts.LOOK_EVERY", 2)
    torch.manual_seed(11)
    watched, told = Watched(model), dict[int, tuple[list[int], int]]()

    def on_end(places: Sequence[int], answers: list[list[int]]) -> None:
        for place, tokens in zip(places, answers, strict=True):
            assert place not in told
            told[place] = tokens, len(watched.scores)

    draw = FreshDraw(temperature=1.0, top_p=1.0)
    ours = Rollouts(draw, max_new_tokens=24, end_ids=range(20), pad_id=PAD)
    answers = ours.sample(watched, PROMPTS, on_end=on_end)
    assert {place: tokens for place, (tokens, _) in told.items()} == dict(enumerate(answers))
    for tokens, num_drawn in told.values():
        assert len(tokens) <= num_drawn <= len(tokens) + 1
    assert len({num_drawn for _, num_drawn in told.values()}) > 2


def test_tokens_are_drawn_from_the_models_own_probabilities(model: Any) -> None:
    import torch

    watched = Watched(model)
    torch.manual_seed(3)
    answers = rollouts().sample(watched, PROMPTS)
    distinct = list(dict.fromkeys(PROMPTS))
    first = watched.scores[0][[distinct.index(prompt) for prompt in PROMPTS]]
    scores = torch.stack([first, *watched.scores[1:]], dim=1).log_softmax(-1)
    for row, prompt, answer in zip(scores, PROMPTS, answers, strict=True):
        with torch.no_grad():
            alone = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
        expected = alone[len(prompt) - 1 : -1].log_softmax(-1)
        assert torch.allclose(row[: len(answer)], expected, atol=1e-4)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.8)])
def test_frequencies_equal_the_models_probabilities(
    model: Any, temperature: float, top_p: float
) -> None:
    """Chi-square over the first token of many answers to two prompts of different lengths."""
    import torch

    torch.manual_seed(5)
    prompts = [PROMPTS[1]] * 4000 + [PROMPTS[3]] * 4000
    sampler = rollouts(temperature=temperature, top_p=top_p, max_new_tokens=1)
    answers = sampler.sample(model, prompts)
    for prompt, mine in ((PROMPTS[1], answers[:4000]), (PROMPTS[3], answers[4000:])):
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([prompt])).logits[0, -1].tolist()
        expected = nucleus(scores, temperature, top_p)
        counts = Counter(tokens[0] for tokens in mine)
        assert set(counts) <= set(expected)
        assert chi_square(counts, expected, total=4000) < 1


def nucleus(scores: list[float], temperature: float, top_p: float) -> dict[int, float]:
    """Return the probabilities of the tokens that may be drawn, by a slow loop."""
    weights = {token: math.exp(score / temperature) for token, score in enumerate(scores)}
    total = sum(weights.values())
    kept: dict[int, float] = {}
    for token in sorted(weights, key=lambda token: -weights[token]):
        if sum(kept.values()) >= top_p * total:
            break
        kept[token] = weights[token]
    return {token: weight / sum(kept.values()) for token, weight in kept.items()}


def chi_square(counts: Counter[int], expected: dict[int, float], *, total: int) -> float:
    """Return the statistic over about its 99.9 % quantile; tokens too rare for it are pooled."""
    rare = [token for token, p in expected.items() if p * total < 5]
    cells = [(counts[token], p) for token, p in expected.items() if token not in rare]
    cells.append((sum(counts[token] for token in rare), sum(expected[token] for token in rare)))
    cells = [(count, p) for count, p in cells if p > 0]
    statistic = sum((count - total * p) ** 2 / (total * p) for count, p in cells)
    freedom = max(1, len(cells) - 1)
    return statistic / (freedom + 3.1 * math.sqrt(2 * freedom) + 5)


def test_a_later_call_uses_the_current_weights(model: Any) -> None:
    import copy

    import torch

    other = copy.deepcopy(model)
    sampler = rollouts(top_p=1e-6)
    before = sampler.sample(other, PROMPTS)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight))
    after = sampler.sample(other, PROMPTS)
    assert after == generated(other, PROMPTS, do_sample=False) != before


def test_later_calls_may_have_longer_prompts_and_more_answers(model: Any) -> None:
    sampler = rollouts(top_p=1e-6)
    for prompts in (PROMPTS[1:3], PROMPTS, [tuple(range(2, 60)) * 3, *PROMPTS], PROMPTS[:1]):
        assert sampler.sample(model, prompts) == generated(model, prompts, do_sample=False)


def test_policies_with_windows_or_other_attention_are_not_plain(model: Any) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {
        "vocab_size": 32,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
    }
    assert is_plain(model)
    assert is_plain(MistralForCausalLM(MistralConfig(**sizes, sliding_window=None)))
    assert not is_plain(MistralForCausalLM(MistralConfig(**sizes, sliding_window=4)))
    eager = MistralConfig(**sizes, sliding_window=None, attn_implementation="eager")
    assert not is_plain(MistralForCausalLM(eager))
