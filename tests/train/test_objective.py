"""What TRL minimises is equations 4 and 5, but for four departures, which stand in `slow_loss`."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from cudal1.train import grpo
from tests.train.test_grpo import Letters, train

BETA, EPSILON, TEMPERATURE = 0.3, 0.02, 0.9


@dataclass
class Seen:
    """What the trainer minimised at each update, and what the paper says."""

    trl: list[float] = field(default_factory=list[float])
    paper: list[float] = field(default_factory=list[float])
    ratios: list[float] = field(default_factory=list[float])
    """Of all tokens at the last update."""


def log_probs(model: Any, prompt: list[int], answer: list[int]) -> list[float]:
    """Of each token of an answer, one by one, without padding."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0] / TEMPERATURE
    found: list[float] = []
    for place, token in enumerate(answer, start=len(prompt) - 1):
        row = logits[place].tolist()
        top = max(row)
        found.append(row[token] - top - math.log(sum(math.exp(value - top) for value in row)))
    return found


def slow_loss(
    answers: list[tuple[list[int], list[int], float]], now: Any, old: Any, start: Any, seen: Seen
) -> float:
    """Minus equation 5, over answers as (prompt, tokens, reward), with equation 4.

    Departures, all of them TRL's and usual: the deviation is a sample's, plus 1e-4; the ratio is
    that of each token, not of the whole answer; an answer counts as the mean over its tokens; the
    divergence from the start is estimated at the sampled tokens by exp(d) - d - 1 with d the
    difference of log-probabilities (Schulman's k3), which is never negative.
    """
    seen.ratios.clear()
    objective = 0.0
    for prompt, tokens, reward in answers:
        group = [other for asked, _, other in answers if asked == prompt]
        mean = sum(group) / len(group)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))
        advantage = (reward - mean) / (deviation + 1e-4)
        of_tokens = 0.0
        for ours, before, first in zip(
            *(log_probs(model, prompt, tokens) for model in (now, old, start)), strict=True
        ):
            ratio = math.exp(ours - before)
            clipped = min(1 + EPSILON, max(1 - EPSILON, ratio))
            divergence = math.exp(first - ours) - (first - ours) - 1
            of_tokens += min(ratio * advantage, clipped * advantage) - BETA * divergence
            seen.ratios.append(ratio)
        objective += of_tokens / len(tokens)
    return -objective / len(answers)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tiny_policy: Path) -> Seen:
    from transformers import AutoModelForCausalLM

    found, ours = Seen(), grpo._trainer_class()
    start: Any = AutoModelForCausalLM.from_pretrained(tiny_policy).eval()

    class Watched(ours):
        old: Any

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
            # no deep copy: TRL hangs a forward on the model that calls the one that is trained
            self.old = copy.deepcopy(start)
            self.old.load_state_dict(self.accelerator.unwrap_model(self.model).state_dict())
            return super()._generate_and_score_completions(inputs)

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            answers: list[tuple[list[int], list[int], float]] = []
            for row in range(len(inputs["prompt_ids"])):
                prompt, tokens = (
                    inputs[f"{name}_ids"][row][inputs[f"{name}_mask"][row].bool()].tolist()
                    for name in ("prompt", "completion")
                )
                text = self.processing_class.decode(tokens, skip_special_tokens=True)
                answers.append((prompt, tokens, text.count("a") / max(1, len(text))))
            now = self.accelerator.unwrap_model(model)
            found.paper.append(slow_loss(answers, now, self.old, start, found))
            loss = super()._compute_loss(model, inputs)
            found.trl.append(loss.item())
            return loss

    monkeypatch.setattr(grpo, "_trainer_class", lambda: Watched)
    return found


def test_what_is_minimised_is_equations_4_and_5(
    tiny_policy: Path, tmp_path: Path, seen: Seen
) -> None:
    train(
        tiny_policy, tmp_path, Letters(), steps=4, beta=BETA, epsilon=EPSILON,
        temperature=TEMPERATURE, updates_per_batch=2, learning_rate=0.02,
    )  # fmt: skip
    assert len(seen.trl) == 4
    assert seen.trl == pytest.approx(seen.paper, abs=2e-4)
    clipped = fmean(not 1 - EPSILON <= ratio <= 1 + EPSILON for ratio in seen.ratios)
    assert clipped > 0, "a second update of a batch must feel the clip"
    assert max(map(abs, seen.paper)) > 1e-3, "a loss of nothing proves nothing"
