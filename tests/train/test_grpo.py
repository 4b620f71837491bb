"""Tests of contrastive GRPO on a tiny model that is rewarded for the share of the letter `a`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from cudal1.selection.reward import Advantage, group_advantages
from cudal1.train import grpo
from cudal1.train.policy import fingerprint
from cudal1.train.sampling import answering, rollouts
from cudal1.train.scaling import plain_policy
from tests.train.runs import scale
from tests.train.test_adapter import weights

pytestmark = pytest.mark.slow

PROBLEMS = ("first", "second", "third", "fourth")
SETTINGS = {
    "prompts_per_step": 2,
    "group_size": 8,
    "learning_rate": 0.01,
    "beta": 0.0,
    "epsilon": 0.2,
    "advantage": Advantage.NORMALIZED,
    "entropy_coef": 0.0,
    "entropy_target": None,
    "resamples": 0,
    "turns": 1,
    "mask_truncated": False,
    "updates_per_batch": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "max_new_tokens": 12,
    "checkpoint_every": 2,
    "keeps_checkpoints": False,
    "seed": 5,
    "scale": scale(),
    "vllm_server": None,
}


class Letters:
    """A world that counts letters, and records its calls in order.

    A later turn is asked about the words of the answer before it.
    """

    def __init__(self, *, dies_at: int | None = None, judges_meanwhile: bool = False) -> None:
        self.judges_meanwhile = judges_meanwhile
        self.offered: list[tuple[tuple[str, ...], list[str], int]] = []
        self.asked: list[tuple[str, str, int]] = []
        self.prompts: list[str] = []
        self.refined: list[str] = []
        self.follows: list[int] = []
        self.rewards: list[list[float]] = []
        self.num_scored = 0
        self.restored: dict[str, Any] | None = None
        self._dies_at = dies_at

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        self.asked.append(("prompt", problem_id, step))
        return [{"role": "user", "content": f"{problem_id} after {self.num_scored} answers"}]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        self.offered.append((tuple(problem_ids), list(texts), step))

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        said = [text for _, texts, at in self.offered if at == step for text in texts]
        self.refined += [said[number] for number in numbers]
        return [[{"role": "user", "content": f"after {said[number]}"}] for number in numbers]

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        self.offered.append((("later",) * len(follows), list(texts), step))
        self.follows += follows

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        offered = [text for _, texts, at in self.offered if at == step for text in texts]
        assert offered == list(texts)
        if step == self._dies_at:
            raise KeyboardInterrupt
        self.asked += [("score", problem_id, step) for problem_id in dict.fromkeys(problem_ids)]
        self.num_scored += len(texts)
        self.rewards.append([text.count("a") / max(1, len(text)) for text in texts])
        return list(self.rewards[-1])

    def state(self) -> dict[str, Any]:
        return {"num_scored": self.num_scored}

    def restore(self, state: dict[str, Any]) -> None:
        self.restored = state
        self.num_scored = state["num_scored"]


def train(
    policy: Path, folder: Path, environment: Letters, *, steps: int, **changed: Any
) -> list[Mapping[str, float]]:
    logs: list[Mapping[str, float]] = []
    grpo.train_grpo(
        policy,
        folder / "out",
        PROBLEMS,
        environment,
        grpo.GrpoSettings(steps=steps, **{**SETTINGS, **changed}),
        work=folder / "work",
        on_log=lambda step, values: logs.append(values),
    )
    return logs


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return TRL's view of each batch: prompts and answers as text, and advantages."""
    batches: list[dict[str, Any]] = []
    ours = grpo._trainer_class()

    class Watched(ours):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
            made = super()._generate_and_score_completions(inputs)
            decode = self.processing_class.batch_decode
            batches.append(
                {
                    "prompts": decode(made["prompt_ids"]),
                    "advantages": made["advantages"].tolist(),
                    "answers": decode(made["completion_ids"], skip_special_tokens=True),
                }
            )
            return made

    monkeypatch.setattr(grpo, "_trainer_class", lambda: Watched)
    return batches


def test_the_weights_of_every_checkpoint_stay_if_asked_for(
    tiny_policy: Path, tmp_path: Path
) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=4, checkpoint_every=1, keeps_checkpoints=True)
    kept = grpo.kept_policies(tmp_path / "work")
    assert list(kept) == [1, 2, 3, 4]
    plain_policy(tiny_policy, kept[4], tmp_path / "last")
    assert fingerprint(tmp_path / "last") == fingerprint(tmp_path / "out")
    assert fingerprint(kept[3]) != fingerprint(kept[4])


def test_no_checkpoint_stays_unasked(tiny_policy: Path, tmp_path: Path) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=2, checkpoint_every=1)
    assert grpo.kept_policies(tmp_path / "work") == {}


def test_a_kept_adapter_becomes_the_policy_that_is_saved(tiny_policy: Path, tmp_path: Path) -> None:
    adapted = scale(adapter={"rank": 4, "alpha": 8})
    train(tiny_policy, tmp_path, Letters(), steps=2, scale=adapted, keeps_checkpoints=True)
    [kept] = grpo.kept_policies(tmp_path / "work").values()
    plain_policy(tiny_policy, kept, tmp_path / "last")
    assert not (tmp_path / "last" / "adapter_config.json").exists()
    saved, made = weights(tmp_path / "out"), weights(tmp_path / "last")
    assert saved.keys() == made.keys()
    assert all(torch.allclose(saved[name], made[name], atol=1e-6) for name in saved)
    assert fingerprint(tmp_path / "last") != fingerprint(tiny_policy)


def test_the_mean_reward_rises(tiny_policy: Path, tmp_path: Path) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=24, learning_rate=0.03)
    means = [fmean(rewards) for rewards in world.rewards]
    assert fmean(means[-4:]) > 2 * fmean(means[:4])


def test_each_steps_prompts_are_built_after_the_step_before_was_scored(
    tiny_policy: Path, tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=3)
    order = [(kind, step) for kind, _, step in world.asked]
    assert order == [(kind, i) for i in range(3) for kind in ("prompt", "score") for _ in "ab"]
    for step, batch in enumerate(seen):
        assert all(f"after {step * 16} answers" in prompt for prompt in batch["prompts"])


def test_a_group_shares_one_prompt(
    tiny_policy: Path, tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=1)
    groups = [seen[0]["prompts"][first : first + 8] for first in (0, 8)]
    assert [len(set(group)) for group in groups] == [1, 1]


def test_trls_advantages_are_equation_4(
    tiny_policy: Path, tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=2)
    for batch, rewards in zip(seen, world.rewards, strict=True):
        ours = [*group_advantages(rewards[:8]), *group_advantages(rewards[8:])]
        assert batch["advantages"] == pytest.approx(ours, abs=1e-4)
        assert max(ours) > 0.5


def test_without_a_deviation_an_advantage_is_over_the_mean_of_the_others(
    tiny_policy: Path, tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=1, advantage=Advantage.LEAVE_ONE_OUT)
    (rewards,) = world.rewards
    ours = [
        reward - fmean([*group[:i], *group[i + 1 :]])
        for group in (rewards[:8], rewards[8:])
        for i, reward in enumerate(group)
    ]
    assert seen[0]["advantages"] == pytest.approx(ours, abs=1e-5)


@pytest.mark.parametrize("judges_meanwhile", [False, True])
def test_an_answer_that_another_of_its_group_equals_is_sampled_again(
    tiny_policy: Path, tmp_path: Path, *, judges_meanwhile: bool
) -> None:
    def repeated(folder: str, **settings: Any) -> tuple[int, float]:
        world = Letters(judges_meanwhile=judges_meanwhile)
        logs = train(tiny_policy, tmp_path / folder, world, steps=1, max_new_tokens=1, **settings)
        said = [
            (problem, text)
            for problems, texts, _ in world.offered
            for problem, text in zip(problems, texts, strict=True)
        ]
        assert len(said) == 16
        return len(said) - len(set(said)), logs[0]["resampled"]

    before, none = repeated("once")
    after, again = repeated("again", resamples=20)
    assert before > after
    assert none == 0 < again


@pytest.mark.parametrize("judges_meanwhile", [False, True])
@pytest.mark.parametrize("is_plain", [True, False])
def test_an_answer_of_a_later_turn_learns_from_the_prompt_that_it_was_given(
    tiny_policy: Path,
    tmp_path: Path,
    seen: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    judges_meanwhile: bool,
    is_plain: bool,
) -> None:
    """Groups of 8 are 4 trajectories of 2 turns, which lie turn by turn."""
    monkeypatch.setattr(answering, "is_plain", lambda model: is_plain)
    world = Letters(judges_meanwhile=judges_meanwhile)
    train(tiny_policy, tmp_path, world, steps=1, turns=2, beta=0.1)
    (batch,) = seen
    for group in (0, 8):
        first, later = (range(group + turn, group + turn + 4) for turn in (0, 4))
        assert len({batch["prompts"][place] for place in first}) == 1
        assert "after 0 answers" in batch["prompts"][group]
        for before, place in zip(first, later, strict=True):
            assert f"after {batch['answers'][before]}" in batch["prompts"][place]


def test_a_turn_begins_when_the_one_before_it_has_ended(tiny_policy: Path, tmp_path: Path) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=2, turns=4)
    for step in (0, 1):
        counts = [len(texts) for _, texts, at in world.offered if at == step]
        assert sum(counts) == 16
    assert len(world.refined) == len(world.follows) == 2 * 12
    assert max(world.follows) < 12


def test_rewards_of_trajectories_are_compared_within_their_group(
    tiny_policy: Path, tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=1, turns=2, max_new_tokens=64)
    rewards = [text.count("a") / max(1, len(text)) for text in seen[0]["answers"]]
    ours = [*group_advantages(rewards[:8]), *group_advantages(rewards[8:])]
    assert seen[0]["advantages"] == pytest.approx(ours, abs=1e-4)


def test_repetitions_are_sampled_again_within_every_turn(tiny_policy: Path, tmp_path: Path) -> None:
    def num_equal(folder: str, **settings: Any) -> list[int]:
        world = Letters()
        train(tiny_policy, tmp_path / folder, world, steps=1, max_new_tokens=1, turns=2, **settings)
        said = [
            text for problems, texts, _ in world.offered for text in texts if problems[0] == "later"
        ]
        assert len(said) == 8
        return [len(said) - len(set(said)), len(set(world.follows))]

    before, _ = num_equal("once")
    after, num_followed = num_equal("again", resamples=20)
    assert before > after
    assert num_followed == 8


def test_the_environments_state_comes_back_after_a_kill(tiny_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tiny_policy, tmp_path, Letters(dies_at=3), steps=4)
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=4)
    assert world.restored == {"num_scored": 32}
    assert {step for _, _, step in world.asked} == {2, 3}
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert any((tmp_path / "work").iterdir())


def test_an_epoch_continues_in_its_own_order_after_a_kill(
    tiny_policy: Path, tmp_path: Path
) -> None:
    """Each step has half of the problems; the last checkpoint is in the middle of an epoch."""
    whole, killed, resumed = Letters(), Letters(dies_at=10), Letters()
    settings: dict[str, Any] = {"steps": 12, "checkpoint_every": 9, "max_new_tokens": 2}
    train(tiny_policy, tmp_path / "whole", whole, **settings)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_policy, tmp_path / "two", killed, **settings)
    train(tiny_policy, tmp_path / "two", resumed, **settings)
    orders = [[asked for asked in world.asked if asked[2] >= 9] for world in (whole, resumed)]
    assert orders[0] == orders[1]
    assert {asked[1] for asked in orders[1] if asked[2] == 9} == set(PROBLEMS) - {
        asked[1] for asked in whole.asked if asked[2] == 8
    }


def test_a_policy_that_has_made_all_its_steps_asks_for_nothing(
    tiny_policy: Path, tmp_path: Path
) -> None:
    """A stage may be killed in the work after its training; three steps end amid an epoch."""
    train(tiny_policy, tmp_path, Letters(), steps=3)
    shutil.rmtree(tmp_path / "out")
    world = Letters()
    assert train(tiny_policy, tmp_path, world, steps=3) == []
    assert world.asked == []
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_several_updates_of_a_batch_do_not_break_checkpoints(
    tiny_policy: Path, tmp_path: Path
) -> None:
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=4, updates_per_batch=2, checkpoint_every=1)
    assert len(world.rewards) == 2


def test_answers_are_sampled_together_and_offered_at_their_end_where_the_judge_must_wait(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work without a device can begin: some answers are built while others are being sampled."""
    monkeypatch.setattr(rollouts, "LOOK_EVERY", 2)
    sampled: list[int] = []
    ours = rollouts.Rollouts.sample

    def sample(self: Any, model: Any, prompts: Any, **more: Any) -> Any:
        sampled.append(len(prompts))
        return ours(self, model, prompts, **more)

    monkeypatch.setattr(rollouts.Rollouts, "sample", sample)
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=2, max_new_tokens=64)
    assert sampled == [16, 16]
    for at in (0, 1):
        counts = [len(texts) for _, texts, step in world.offered if step == at]
        assert sum(counts) == 16
        assert len(counts) > 2


def test_rewards_belong_to_their_answers_in_any_order_of_ends(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(rollouts, "LOOK_EVERY", 2)
    world = Letters()
    train(tiny_policy, tmp_path, world, steps=1, max_new_tokens=64)
    assert [text for _, texts, _ in world.offered for text in texts] != seen[0]["answers"]
    rewards = [text.count("a") / max(1, len(text)) for text in seen[0]["answers"]]
    ours = [*group_advantages(rewards[:8]), *group_advantages(rewards[8:])]
    assert seen[0]["advantages"] == pytest.approx(ours, abs=1e-4)


def test_answers_are_offered_group_by_group_where_the_judge_works_meanwhile(
    tiny_policy: Path, tmp_path: Path
) -> None:
    world = Letters(judges_meanwhile=True)
    train(tiny_policy, tmp_path, world, steps=2)
    assert [step for *_, step in world.offered] == [0, 0, 1, 1]
    for problem_ids, texts, _ in world.offered:
        assert (len(set(problem_ids)), len(texts)) == (1, 8)


def test_policies_that_are_not_plain_are_sampled_by_generate(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "is_plain", lambda model: False)
    world = Letters(judges_meanwhile=True)
    train(tiny_policy, tmp_path, world, steps=1)
    assert [len(texts) for _, texts, _ in world.offered] == [8, 8]
