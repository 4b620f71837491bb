"""Sample the answers of a batch, and offer each of them as soon as possible.

A vLLM server is asked for all groups at once. One process samples all answers together, and
finished answers are built while others are still being sampled. Several processes offer together,
and would wait for each other in the middle of their batches: they offer when all answers have
ended. Where judges have devices of their own, groups are sampled one after another.

With several turns a group is a few trajectories. Answers of a turn are sampled like a batch; then
the prompts of the next turn show what became of them (`cudal1.selection.trajectories`).

One process samples an answer again that another of its group equals (`again.py`). Several processes
do not: each would have to sample as often as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from cudal1.train.environment import Offers
from cudal1.train.sampling.again import Again
from cudal1.train.sampling.attention import attend_in_groups, is_plain
from cudal1.train.sampling.draws import FreshDraw
from cudal1.train.sampling.rollouts import OnEnd, Rollouts
from cudal1.train.sampling.served import Served


class Answering:
    """A sampler that answers one batch after the other.

    Args:
        trainer: TRL's, with our `environment`.
        offers: receives the answers.
        resamples: how often an answer that another of its group equals is sampled again.
        turns: answers of a trajectory; a group is a multiple.
    """

    def __init__(self, trainer: Any, offers: Offers, *, resamples: int, turns: int) -> None:
        self._trainer = trainer
        self._offers = offers
        self._rollouts = _rollouts(trainer)
        self._served = Served(trainer.vllm_generation) if trainer.use_vllm else None
        self._sent_at: int | None = None
        """The training step that the server's weights come from."""
        self._resamples = resamples if trainer.accelerator.num_processes == 1 else 0
        self._turns = turns
        self._again = Again((), times=0)
        self._problem_ids: Sequence[str] = ()
        self._answers: list[list[int]] = []
        self._logprobs: list[list[float]] = []

    def sample(
        self,
        problem_ids: Sequence[str],
        prompts: list[list[int]],
        plainly: Callable[[Sequence[list[int]]], list[list[int]]],
        refined: Callable[[Sequence[int]], list[list[int]]],
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Return each prompt's answer as tokens, and log-probabilities where a server gives them.

        Args:
            problem_ids: problems of the prompts; those of a group are next to each other.
            prompts: tokens. Those of later turns are replaced by what their answers were shown.
            plainly: TRL's sampling, for policies that `Rollouts` cannot sample from.
            refined: returns the prompts, as tokens, that go on from answers at given places.
        """
        self._problem_ids = problem_ids
        self._answers = [[] for _ in prompts]
        self._logprobs = [[] for _ in prompts]
        size = self._trainer.num_generations
        self._again = Again([place // size for place in range(len(prompts))], times=self._resamples)
        if self._served is not None:
            self._send_weights()
        group_size = self._num_trajectories
        for turn in range(self._turns):
            places = [place for place in range(len(prompts)) if self._turn(place) == turn]
            if turn > 0:
                made = refined([self._before(place) for place in places])
                for place, prompt in zip(places, made, strict=True):
                    prompts[place] = prompt
                group_size = 1
            self._sample(places, prompts, plainly, group_size=group_size)
            for again in self._again.rounds():
                self._sample(again, prompts, plainly, group_size=1)
        return self._answers, self._logprobs if self._served is not None else None

    @property
    def repeated_share(self) -> float:
        """The number of the last batch's answers that were sampled again, per answer."""
        return self._again.num_repeated / max(1, len(self._answers))

    @property
    def _num_trajectories(self) -> int:
        """The number of a group's trajectories: of its answers in one turn."""
        return self._trainer.num_generations // self._turns

    def _turn(self, place: int) -> int:
        """Return the turn of an answer, from 0; a group's answers lie turn by turn."""
        return place % self._trainer.num_generations // self._num_trajectories

    def _before(self, place: int) -> int:
        """Return the place of the answer before one of a later turn."""
        return place - self._num_trajectories

    def _sample(
        self,
        places: Sequence[int],
        batch: Sequence[list[int]],
        plainly: Callable[[Sequence[list[int]]], list[list[int]]],
        *,
        group_size: int,
    ) -> None:
        """Sample answers for some places of the batch, in groups of equal prompts."""
        prompts = [batch[place] for place in places]

        def take(ended: Sequence[int], answers: list[list[int]], logprobs: Any = None) -> None:
            self._take([places[i] for i in ended], answers, logprobs)

        together = not self._trainer.environment.judges_meanwhile
        is_alone = self._trainer.accelerator.num_processes == 1
        if self._served is not None:
            self._served.sample(prompts, group_size, take)
            return
        if self._rollouts is not None and together and is_alone:
            self._rolled_out(self._rollouts, prompts, on_end=take)
            return
        for part in _parts([self._problem_ids[place] for place in places], together=together):
            asked = prompts[part.start : part.stop]
            take(
                part,
                plainly(asked)
                if self._rollouts is None
                else self._rolled_out(self._rollouts, asked),
            )

    def _take(
        self,
        places: Sequence[int],
        answers: list[list[int]],
        logprobs: list[list[float]] | None = None,
    ) -> None:
        """Take answers that have just ended, by their places; some are to be sampled again."""
        tokenizer = self._trainer.processing_class
        texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
        kept = [i for i, place in enumerate(places) if self._again.keeps(place, texts[i])]
        for i in kept:
            self._answers[places[i]] = answers[i]
            self._logprobs[places[i]] = [] if logprobs is None else logprobs[i]
        if not kept:
            return
        said, step = [texts[i] for i in kept], self._trainer.state.global_step
        ended = [places[i] for i in kept]
        if self._turn(ended[0]) > 0:
            before = [self._before(place) for place in ended]
            self._offers.make_next(ended, before, said, step)
        else:
            self._offers.make(ended, [self._problem_ids[place] for place in ended], said, step)

    def _send_weights(self) -> None:
        step = self._trainer.state.global_step
        if step != self._sent_at:
            self._trainer.vllm_generation.sync_weights()
            self._trainer.accelerator.wait_for_everyone()  # the first one sends before any asks
            self._sent_at = step

    def _rolled_out(
        self, rollouts: Rollouts, prompts: Sequence[list[int]], *, on_end: OnEnd | None = None
    ) -> list[list[int]]:
        from trl.models.utils import unwrap_model_for_generation

        trainer = self._trainer
        with unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model:
            return rollouts.sample(model, prompts, on_end=on_end)


def _rollouts(trainer: Any) -> Rollouts | None:
    """Return our sampler, or None where TRL samples itself (`generate`, vLLM, gathered shards)."""
    sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if trainer.use_vllm or sharded or not is_plain(trainer.model):
        return None
    if trainer.model.device.type == "cpu":
        attend_in_groups(trainer.model)
    return Rollouts(
        FreshDraw(temperature=trainer.temperature, top_p=trainer.top_p),
        max_new_tokens=trainer.max_completion_length,
        end_ids=trainer.eos_token_ids,
        pad_id=trainer.processing_class.pad_token_id,
    )


def _parts(problem_ids: Sequence[str], *, together: bool) -> Iterator[range]:
    """Yield places of answers that are sampled at once: all, or group by group."""
    if together:
        yield range(len(problem_ids))
        return
    first = 0
    for _, group in groupby(problem_ids):
        last = first + len(list(group))
        yield range(first, last)
        first = last
