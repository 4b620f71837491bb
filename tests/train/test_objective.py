"""Tests that TRL minimizes equations 4 and 5, with an estimate of the divergence.

The equations are those of `cudal1.selection.reward`, which tests/selection/test_reward.py checks.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from cudal1.selection.reward import Advantage, group_advantages, objective
from cudal1.train import grpo
from tests.train.test_grpo import Letters, train

BETA, EPSILON, TEMPERATURE = 0.3, 0.02, 0.9


@dataclass
class Seen:
    """The trainer's objective at each update, and ours."""

    trl: list[float] = field(default_factory=list[float])
    ours: list[float] = field(default_factory=list[float])
    ratios: list[float] = field(default_factory=list[float])
    """The ratios of all tokens at the last update."""


def log_probs(model: Any, prompt: list[int], answer: list[int]) -> list[float]:
    """Return the log-probability of each token of an answer, one by one, without padding."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0] / TEMPERATURE
    found: list[float] = []
    for place, token in enumerate(answer, start=len(prompt) - 1):
        row = logits[place].tolist()
        top = max(row)
        found.append(row[token] - top - math.log(sum(math.exp(value - top) for value in row)))
    return found


def our_loss(
    answers: list[tuple[list[int], list[int], float]], now: Any, old: Any, start: Any, seen: Seen
) -> float:
    """Return minus equation 5, with equation 4, over answers as (prompt, tokens, reward).

    The divergence from the start is estimated at the sampled tokens by exp(d) - d - 1 with d the
    difference of log-probabilities (Schulman's k3).
    """
    seen.ratios.clear()
    groups: list[float] = []
    for prompt in dict.fromkeys(tuple(asked) for asked, _, _ in answers):
        mine = [(tokens, reward) for asked, tokens, reward in answers if tuple(asked) == prompt]
        ratios, divergences = [], []
        for tokens, _ in mine:
            ours, before, first = (log_probs(m, list(prompt), tokens) for m in (now, old, start))
            ratios.append([math.exp(o - b) for o, b in zip(ours, before, strict=True)])
            ahead = [f - o for f, o in zip(first, ours, strict=True)]
            divergences.append([math.exp(d) - d - 1 for d in ahead])
        seen.ratios += [ratio for of_answer in ratios for ratio in of_answer]
        advantages = group_advantages([reward for _, reward in mine])
        groups.append(objective(ratios, advantages, divergences, epsilon=EPSILON, beta=BETA))
    return -fmean(groups)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tiny_policy: Path) -> Seen:
    from transformers import AutoModelForCausalLM

    found, trainer = Seen(), grpo._trainer_class()
    start: Any = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype="float32").eval()

    class Watched(trainer):
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
            found.ours.append(our_loss(answers, now, self.old, start, found))
            loss = super()._compute_loss(model, inputs)
            found.trl.append(loss.item())
            return loss

    monkeypatch.setattr(grpo, "_trainer_class", lambda: Watched)
    return found


@pytest.mark.slow
def test_the_minimized_objective_is_that_of_equations_4_and_5(
    tiny_policy: Path, tmp_path: Path, seen: Seen
) -> None:
    train(
        tiny_policy,
        tmp_path,
        Letters(),
        steps=4,
        beta=BETA,
        epsilon=EPSILON,
        temperature=TEMPERATURE,
        advantage=Advantage.NORMALIZED,
        entropy_coef=0.0,
        entropy_target=None,
        resamples=0,
        turns=1,
        mask_truncated=False,
        updates_per_batch=2,
        learning_rate=0.02,
    )
    assert len(seen.trl) == 4
    assert seen.trl == pytest.approx(seen.ours, abs=2e-5)
    clipped = fmean(not 1 - EPSILON <= ratio <= 1 + EPSILON for ratio in seen.ratios)
    assert clipped > 0, "a second update of a batch must feel the clip"
    assert max(map(abs, seen.ours)) > 1e-3, "a loss of nothing proves nothing"


def test_the_estimate_is_the_divergence_and_its_gradient_is_that_of_the_opposite_one() -> None:
    """docs/training/departures.md says so: exact, over all tokens of a small vocabulary."""
    import torch

    torch.manual_seed(0)
    start = torch.randn(6, dtype=torch.float64).log_softmax(-1)
    scores = torch.randn(6, dtype=torch.float64, requires_grad=True)
    now = scores.log_softmax(-1)
    ahead = start - now
    estimate = (now.detach().exp() * (ahead.exp() - ahead - 1)).sum()  # sampled: no gradient
    to_start, from_start = (now.exp() * -ahead).sum(), (start.exp() * ahead).sum()
    gradient, same, opposite = (
        torch.autograd.grad(value, scores, retain_graph=True)[0]
        for value in (estimate, to_start, from_start)
    )
    assert estimate.item() == pytest.approx(to_start.item())
    torch.testing.assert_close(gradient, opposite)
    assert not torch.allclose(gradient, same, rtol=0.1)
