"""Make the embedded base policy from nothing: `python -m tasks.pretrain`, on a GPU in minutes.

The text is problems of the procedural generator with rewrites of mixed quality by the rule-based
teachers' engine, as plain prompts and as contrastive prompts. Combinations of operators that are
reserved for held-out problems never occur. The teachers' labels (fast, wrong …) set the mixture. No
measured speedup enters, so training must find out by itself what is fast on a device.

The scores of a contrastive prompt are made up: each text draws anew how fast each form is. So there
is something to be read from scores, and nothing to be remembered.

This file is long because it holds the recipe of the text and the run that makes a policy of it,
under one version.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import platform
import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import (
    DeviceFacts,
    PromptStyle,
    answer_text,
    contrastive_prompt,
    generation_prompt,
)
from cudal1.selection.exemplar import Exemplar
from cudal1.suite import generator
from cudal1.teachers import Choice, Kind, Rewrite, Weights, compose, variant
from cudal1.teachers.rules.knobs import FAMILIES as KNOBS
from cudal1.train import pretraining
from cudal1.train.policy import EMBEDDED
from cudal1.train.surroundings import surround

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

CORPUS_VERSION = "6"
ARCHITECTURES = {
    "medium": pretraining.Architecture(
        vocabulary=2048, hidden=256, layers=6, heads=4, kv_heads=2, mlp=768, context=4096
    ),
    "smoke": pretraining.Architecture(
        vocabulary=512, hidden=64, layers=2, heads=1, kv_heads=1, mlp=128, context=4096
    ),
}


@dataclass(frozen=True)
class Author:
    """A simulated author of one skill, with a share of the texts."""

    share: float
    kinds: Mapping[Kind, float]
    cheat: float = 0.0
    broken: float = 0.0
    drafts: int = 1
    """Drafts of an answer to a contrastive prompt; the fastest new one is written."""


AUTHORS = (
    Author(
        0.30,
        {Kind.REFERENCE: 0.20, Kind.MID: 0.42, Kind.SLOW: 0.10, Kind.FAST: 0.24, Kind.WRONG: 0.04},
        broken=0.01,
        drafts=8,
    ),
    Author(
        0.10,
        {Kind.REFERENCE: 0.08, Kind.MID: 0.20, Kind.SLOW: 0.02, Kind.FAST: 0.66, Kind.WRONG: 0.04},
        broken=0.02,
        drafts=8,
    ),
    Author(
        0.60,
        {Kind.REFERENCE: 0.15, Kind.MID: 0.20, Kind.SLOW: 0.10, Kind.FAST: 0.10, Kind.WRONG: 0.45},
        cheat=0.04,
        broken=0.08,
    ),
)
"""A careful, a fast and a sloppy author. One author writes a whole text, so skill is a property of
a text and not of a line. Training can raise or lower it, as in a large model. The careful and the
fast author also read scores; the sloppy one mixes the exemplars."""
CONTRASTIVE_SHARE = 0.45
FROM_BETTER = (0.3, 0.9)
"""Least and greatest probability that a draft of a contrastive answer takes a place from the better
exemplar: some drafts change little, some nearly all."""
FROM_WORSE = 0.25
"""Share of the remaining places taken from the worse exemplar; the rest is the author's own choice.
"""
TRIED = (2, 6, 18)
"""Numbers of variants from which the best exemplar is chosen: exemplars improve as a policy trains.
"""
RELATED_SHARE, RELATED_PLACES = 0.5, 0.5
"""Share of exemplar pairs in which one comes from the other, and share of its places that are its
own. The scores of such a pair show the worth of the difference, as between a policy's own finds."""
GAINS = {
    Kind.REFERENCE: (1.0, 1.0),
    Kind.MID: (0.9, 1.4),
    Kind.SLOW: (0.4, 0.9),
    Kind.FAST: (1.2, 4.0),
    Kind.WRONG: (0.9, 1.4),
}
"""Least and greatest made-up speedup of a place; a wrong one counts as what it looks like."""
KNOB_GAINS = (0.5, 6.0)
"""Least and greatest made-up speedup of a knob's forms: in every text each is as likely the best.
"""
SCORE_NOISE = 0.02
SHOWN = {Kind.REFERENCE: 0.30, Kind.MID: 0.32, Kind.SLOW: 0.08, Kind.FAST: 0.30}
"""Shares of kinds in exemplars: what is shown is correct."""
SURROUNDED_SHARE = 0.6
"""Share of problems in another frame than the generator's, so that copying is learned, not a
layout."""
KNOB_SHARES = (0.5, 0.2, 0.3)
"""Shares of problems with none, one and two operations that have to be measured for their best
form."""
STAGE_SHARES = ((0.25, 0.4, 0.25, 0.1), (0.2, 0.4, 0.3, 0.1), (0.0, 0.0, 0.6, 0.4))
"""Shares of problems of one to four operations, by the number of knobs."""
DEVICE_CLASSES = (DeviceClass.CPU, DeviceClass.CPU, DeviceClass.CUDA)
TOKENIZER_DOCUMENTS = 3000
MAX_MEAN_TOKENS = 800
"""Mean tokens of a document that memory is reserved for."""
PIECE = 500
"""Documents that one process makes at a time."""


def documents(seed: int, count: int) -> Iterator[str]:
    """Yield training texts, reproducible from the seed."""
    rng = random.Random(seed)
    for index in range(count):
        prompt, answer = _example(rng, _problem(rng, seed, index))
        yield pretraining.render(
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        )


def lessons_in_reading(
    seed: int,
    count: int,
    *,
    style: PromptStyle = PromptStyle.COMPACT,
    facts: DeviceFacts | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield contrastive prompts with answers that follow scores; training must not undo this.

    `facts` may be None only where the style's templates use none.
    """
    rng = random.Random(seed)
    readers = [author for author in AUTHORS if author.drafts > 1]
    for index in range(count):
        author = rng.choices(readers, [author.share for author in readers])[0]
        yield _contrastive(rng, _problem(rng, seed, index), author, style, facts)


def _problem(rng: random.Random, seed: int, index: int) -> Problem:
    num_knobs = rng.choices(range(3), KNOB_SHARES)[0]
    problem = generator.generate(
        seed,
        index,
        device_class=rng.choice(DEVICE_CLASSES),
        split=Split.TRAIN,
        num_stages=rng.choices((1, 2, 3, 4), STAGE_SHARES[num_knobs])[0],
        num_knobs=num_knobs,
    )
    if rng.random() < SURROUNDED_SHARE:
        problem = problem.model_copy(update={"source": surround(problem.source, rng)})
    return problem


def _example(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """Return a prompt's text and an answer."""
    author = rng.choices(AUTHORS, [author.share for author in AUTHORS])[0]
    if rng.random() < CONTRASTIVE_SHARE:
        return _contrastive(rng, problem, author)
    weights = Weights(author.kinds, cheat=author.cheat, broken=author.broken)
    made = variant(problem.source, rng=rng, weights=weights)
    prompt = generation_prompt(problem, style=PromptStyle.COMPACT)
    return prompt.messages[0].content, answer_text(made.source)


def _contrastive(
    rng: random.Random,
    problem: Problem,
    author: Author,
    style: PromptStyle = PromptStyle.COMPACT,
    facts: DeviceFacts | None = None,
) -> tuple[str, str]:
    """Return a prompt with scored exemplars, and an answer made from them."""
    tried = [_exemplar(rng, problem) for _ in range(rng.choice(TRIED))]
    speeds = Speeds(rng, tried[0])
    first = max(tried, key=lambda made: speeds.of(made.choices))
    others = [_another(rng, problem, first) for _ in range(rng.choice((0, 1, 1, 1)))]
    shown = sorted(((speeds.score(r), r) for r in (first, *others)), key=lambda pair: pair[0])
    worse, better = shown[0][1], shown[-1][1]
    drafts = [
        _mixed(rng, better, worse, variant(problem.source, rng=rng, weights=Weights(author.kinds)))
        for _ in range(author.drafts)
    ]
    known = [made.choices for _, made in shown]
    new = [draft for draft in drafts if draft not in known]
    picked = [choice.option for choice in max(new or drafts, key=speeds.of)]
    exemplars = [
        Exemplar(candidate_id=str(i), source=made.source, score=score)
        for i, (score, made) in enumerate(shown)
    ]
    prompt = contrastive_prompt(problem, exemplars, style=style, facts=facts)
    return prompt.messages[0].content, answer_text(compose(problem.source, picked).source)


def _exemplar(rng: random.Random, problem: Problem) -> Rewrite:
    return variant(problem.source, rng=rng, weights=Weights(SHOWN))


def _another(rng: random.Random, problem: Problem, first: Rewrite) -> Rewrite:
    """Return a second exemplar: an independent one, or one made from the first."""
    made = _exemplar(rng, problem)
    if rng.random() >= RELATED_SHARE:
        return made
    picked = [
        (new if rng.random() < RELATED_PLACES else old).option
        for old, new in zip(first.choices, made.choices, strict=True)
    ]
    return compose(problem.source, picked)


def _mixed(rng: random.Random, better: Rewrite, worse: Rewrite, own: Rewrite) -> tuple[Choice, ...]:
    """Return an answer that takes each place from one of the three."""
    from_better = rng.uniform(*FROM_BETTER)
    from_worse = FROM_WORSE * (1 - from_better)
    weights = (from_better, from_worse, 1 - from_better - from_worse)
    return tuple(
        rng.choices(three, weights)[0]
        for three in zip(better.choices, worse.choices, own.choices, strict=True)
    )


class Speeds:
    """Made-up speeds of one text: the cost of each place, and the gain of each of its forms."""

    def __init__(self, rng: random.Random, rewrite: Rewrite) -> None:
        self._rng = rng
        self._costs = [rng.uniform(0.3, 1.0) for _ in rewrite.choices]
        self._gains: dict[tuple[int, int | None], float] = {}

    def of(self, choices: Sequence[Choice]) -> float:
        """Return the speedup of choices: times add up, so gains of places nearly multiply."""
        if not choices:
            return 1.0
        times = [
            cost / self._gain(n, choice)
            for n, (cost, choice) in enumerate(zip(self._costs, choices, strict=True))
        ]
        return sum(self._costs) / sum(times)

    def score(self, rewrite: Rewrite) -> float:
        """Return the score that a measurement would give."""
        return self.of(rewrite.choices) * self._rng.uniform(1 - SCORE_NOISE, 1 + SCORE_NOISE)

    def _gain(self, place: int, choice: Choice) -> float:
        """Return the gain of a form; the same form always has the same gain."""
        key = (place, choice.option)
        if key not in self._gains:
            is_knob = choice.family in KNOBS and choice.kind is not Kind.REFERENCE
            low, high = KNOB_GAINS if is_knob else GAINS[choice.kind]
            self._gains[key] = math.exp(self._rng.uniform(math.log(low), math.log(high)))
        return self._gains[key]


def _tokenized(job: tuple[Any, int, int]) -> list[list[int]]:
    tokenizer, count, seed = job
    return tokenizer(list(documents(seed, count)), add_special_tokens=False)["input_ids"]


def pieces(pool: Pool, tokenizer: Any, *, seed: int, count: int) -> Iterator[tuple[Any, list[int]]]:
    """Yield the corpus as it is made: tokens of some documents, and their number in each."""
    import numpy

    sizes = [min(PIECE, count - first) for first in range(0, count, PIECE)]
    jobs = [(tokenizer, size, seed * 1_000_000 + i) for i, size in enumerate(sizes)]
    for rows in pool.imap(_tokenized, jobs):
        tokens = numpy.fromiter((t for row in rows for t in row), dtype=numpy.int16)
        yield tokens, [len(row) for row in rows]


def main() -> None:
    """Make tokenizer and model, train while text is made, and save with a note of how."""
    arguments = _arguments()
    architecture = ARCHITECTURES[arguments.architecture]
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    tokenizer = pretraining.build_tokenizer(
        documents(arguments.seed - 1, TOKENIZER_DOCUMENTS), architecture
    )
    say(f"tokenizer of {len(tokenizer)} entries")
    # forked before anything touches a GPU
    with multiprocessing.get_context("fork").Pool(arguments.processes) as pool:
        import torch

        text = pieces(pool, tokenizer, seed=arguments.seed, count=arguments.documents)
        model = pretraining.build_model(tokenizer, architecture, seed=arguments.seed)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        corpus = pretraining.Corpus(
            text, capacity=arguments.documents * MAX_MEAN_TOKENS, device=device
        )
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        say(f"{num_parameters / 1e6:.2f} M parameters")
        losses: list[float] = []

        def on_log(step: int, loss: float, rate: float) -> None:
            losses.append(loss)
            if step % 1000 == 0 or step < 1000:
                say(
                    f"step {step} loss {loss:.4f} tokens/s {rate:.3g} "
                    f"of {corpus.num_tokens / 1e6:.1f} M tokens"
                )

        steps = pretraining.train(
            model.to(device),
            corpus,
            steps=arguments.steps,
            rows=arguments.rows,
            context=arguments.context,
            learning_rate=arguments.learning_rate,
            seed=arguments.seed,
            on_log=on_log,
            time_limit_s=arguments.minutes * 60,
        )
    pretraining.save(model.cpu(), tokenizer, arguments.out)
    note = {
        "command": "python -m tasks.pretrain",
        "settings": {k: v for k, v in vars(arguments).items() if k not in ("out", "processes")},
        "corpus_version": CORPUS_VERSION,
        "generator_version": generator.GENERATOR_VERSION,
        "num_parameters": num_parameters,
        "num_corpus_tokens": corpus.num_tokens,
        "num_documents": corpus.num_documents,
        "steps_made": steps,
        "final_loss": sum(losses[-5:]) / len(losses[-5:]),
        **_machine(),
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    (arguments.out / "pretraining.json").write_text(json.dumps(note, indent=2) + "\n")
    say(f"saved {arguments.out.name}")


def _arguments() -> argparse.Namespace:
    """Parse options; defaults make a policy like the embedded one (see its pretraining.json)."""
    parser = argparse.ArgumentParser(prog="python -m tasks.pretrain", description=__doc__)
    parser.add_argument("--out", type=_folder, default=EMBEDDED)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="medium")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=96, help="windows in a batch")
    parser.add_argument("--context", type=int, default=1536, help="tokens in a window")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--minutes", type=float, default=10.0, help="for training, at most")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _folder(text: str) -> Path:
    """Return the path; an empty text, which an unset variable leaves, would be this folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give a folder, or leave the option out")
    return Path(text)


def _machine() -> dict[str, str]:
    """Return the machine and the versions that the weights were made with."""
    import torch
    import transformers

    made: dict[str, str] = {"device": "cpu"}
    if torch.cuda.is_available():
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        made = {"device": torch.cuda.get_device_name(), "driver": driver[0] if driver else ""}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**made, **versions, "python": platform.python_version()}


if __name__ == "__main__":
    main()
