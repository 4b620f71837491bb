"""Make the embedded base policy from nothing: `python -m tasks.pretrain`, on a GPU in minutes.

Text: problems of the procedural generator with rewrites of mixed quality by the rule-based teachers'
engine, as plain prompts and as contrastive prompts. Combinations of operators that are reserved for
held-out problems never occur. The teachers' labels (fast, wrong …) set the mixture; no measured
speedup enters, so what is fast on a device is left for training to find out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cudal1.contrast import Exemplar
from cudal1.llm.rewriter import FAMILIES, Kind, Weights, compose, places, variant
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompt import (
    PromptStyle,
    answer_text,
    contrastive_prompt,
    generation_prompt,
)
from cudal1.suite import generator
from cudal1.train import pretraining
from cudal1.train.policy import EMBEDDED

CORPUS_VERSION = "1"
ARCHITECTURES = {
    "small": pretraining.Architecture(
        vocabulary=1024, hidden=128, layers=5, heads=2, kv_heads=1, mlp=448, context=4096
    ),
    "medium": pretraining.Architecture(
        vocabulary=1024, hidden=192, layers=4, heads=3, kv_heads=1, mlp=640, context=4096
    ),
}
MIXTURE = {
    Kind.REFERENCE: 0.42, Kind.MID: 0.25, Kind.SLOW: 0.08, Kind.FAST: 0.10, Kind.WRONG: 0.15,
}  # fmt: skip
RARE_FAST = {**MIXTURE, Kind.FAST: 0.03, Kind.REFERENCE: 0.49}
RARE_SHARE = 3
"""One family in so many has a fast form that is rarely written: something to discover."""
CONTRASTIVE_SHARE = 0.45
FROM_BETTER, FROM_WORSE = 0.45, 0.15
"""Where a contrastive answer takes each place from; the rest is its own choice."""
SCORES = {
    Kind.REFERENCE: (0.97, 1.03), Kind.MID: (0.9, 1.4), Kind.SLOW: (0.4, 0.9),
    Kind.FAST: (1.3, 3.5), Kind.WRONG: (1.0, 1.0),
}  # fmt: skip
NAMES = (("ROWS", "COLUMNS"), ("batch", "dim"), ("n", "m"), ("batch", "features"), ("b", "d"))
ATTRIBUTE_NAMES = (
    "weight", "bias", "scale", "shift", "gain", "w", "b", "u", "v", "gate", "first", "second",
    "linear", "proj", "up", "down", "out",
)  # fmt: skip
PIECE = 2000
"""Documents that one process makes at a time."""


def documents(seed: int, count: int) -> Iterator[str]:
    """Training texts, reproducible from the seed."""
    rng = random.Random(seed)
    for index in range(count):
        problem = generator.generate(
            seed, index, device_class=rng.choice((DeviceClass.CPU, DeviceClass.CPU, DeviceClass.CUDA)),
            num_stages=rng.choices((1, 2, 3, 4), (0.25, 0.4, 0.25, 0.1))[0], split=Split.TRAIN,
        )  # fmt: skip
        yield _renamed(rng, *_example(rng, problem))


def _example(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """A prompt's text and an answer."""
    if rng.random() >= CONTRASTIVE_SHARE:
        made = variant(problem.source, rng=rng, weights=_weights())
        prompt = generation_prompt(problem, style=PromptStyle.COMPACT)
        return prompt.messages[0].content, answer_text(made.source)
    shown = sorted(
        (_scored(rng, problem) for _ in range(rng.choice((1, 2, 2, 2)))), key=lambda pair: pair[0]
    )
    own = _choices(rng, problem, _weights())
    picked = [
        rng.choices(
            (shown[-1][1][i], shown[0][1][i], own[i]),
            (FROM_BETTER, FROM_WORSE, 1 - FROM_BETTER - FROM_WORSE),
        )[0]
        for i in range(len(own))
    ]
    exemplars = [
        Exemplar(candidate_id=str(i), source=compose(problem.source, choices).source, score=score)
        for i, (score, choices) in enumerate(shown)
    ]
    prompt = contrastive_prompt(problem, exemplars, style=PromptStyle.COMPACT)
    return prompt.messages[0].content, answer_text(compose(problem.source, picked).source)


def _scored(rng: random.Random, problem: Problem) -> tuple[float, list[int | None]]:
    """Choices without wrong ones, and a made-up score that fits their labels."""
    right = Weights(kinds={**MIXTURE, Kind.WRONG: 0.0, Kind.FAST: 0.25})
    choices = _choices(rng, problem, right)
    score = 1.0
    for choice in compose(problem.source, choices).choices:
        score *= rng.uniform(*SCORES[choice.kind])
    return score, choices


def _choices(rng: random.Random, problem: Problem, weights: Weights) -> list[int | None]:
    honest = Weights(kinds=weights.kinds, by_family=weights.by_family)
    made = variant(problem.source, rng=rng, weights=honest)
    assert len(made.choices) == len(places(problem.source))
    return [choice.option for choice in made.choices]


def _weights() -> Weights:
    rare = {
        family: RARE_FAST
        for family in FAMILIES
        if int(hashlib.sha256(family.encode()).hexdigest(), 16) % RARE_SHARE == 0
    }
    return Weights(kinds=MIXTURE, by_family=rare, cheat=0.03, broken=0.04)


def _renamed(rng: random.Random, prompt: str, answer: str) -> str:
    """The pair as training text, with other names for sizes and attributes than the generator's.

    So that copying is learned, not a vocabulary: hand-written problems use names of their own.
    """
    rows, columns = rng.choice(NAMES)
    names = {"ROWS": rows, "COLUMNS": columns}
    if rng.random() < 0.5:
        attributes = list(dict.fromkeys(re.findall(r"self\.([a-z]+\d)\b", prompt)))
        fresh = rng.sample(ATTRIBUTE_NAMES, len(ATTRIBUTE_NAMES))
        names |= dict(zip(attributes, fresh, strict=False))
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    return pretraining.render([
        {"role": role, "content": pattern.sub(lambda match: names[match.group()], text)}
        for role, text in (("user", prompt), ("assistant", answer))
    ])  # fmt: skip


def _tokenized(tokenizer: Any, seed: int) -> list[int]:
    texts = list(documents(seed, PIECE))
    return [t for row in tokenizer(texts, add_special_tokens=False)["input_ids"] for t in row]


def _stream(tokenizer: Any, seeds: Sequence[int], processes: int) -> Any:
    """All documents as one stream of tokens."""
    import numpy
    import torch

    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pieces = [
            numpy.asarray(piece, dtype=numpy.int16)
            for piece in pool.imap(partial(_tokenized, tokenizer), seeds)
        ]
    return torch.from_numpy(numpy.concatenate(pieces))


def main() -> None:
    """Make tokenizer and model, train, save with a note of how."""
    parser = argparse.ArgumentParser(prog="python -m tasks.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, default=EMBEDDED)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="small")
    parser.add_argument("--documents", type=int, default=600_000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=128, help="windows in a batch")
    parser.add_argument("--context", type=int, default=1024, help="tokens in a window")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--minutes", type=float, default=6.0, help="for training, at most")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    architecture = ARCHITECTURES[arguments.architecture]
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    tokenizer = pretraining.build_tokenizer(documents(arguments.seed - 1, 8000), architecture)
    say(f"tokenizer of {len(tokenizer)} entries")
    seeds = [arguments.seed * 1_000_000 + i for i in range(arguments.documents // PIECE)]
    stream = _stream(tokenizer, seeds, arguments.processes)
    say(f"{len(stream) / 1e6:.1f} M tokens")
    model = pretraining.build_model(tokenizer, architecture, seed=arguments.seed)
    import torch

    if torch.cuda.is_available():
        model.cuda()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{num_parameters / 1e6:.2f} M parameters")
    losses: list[float] = []

    def on_log(step: int, loss: float, rate: float) -> None:
        losses.append(loss)
        if step % 1000 == 0 or step < 1000:
            say(f"step {step} loss {loss:.4f} tokens/s {rate:.3g}")

    steps = pretraining.train(
        model, stream, steps=arguments.steps, rows=arguments.rows, context=arguments.context,
        learning_rate=arguments.learning_rate, seed=arguments.seed, on_log=on_log,
        time_limit_s=arguments.minutes * 60,
    )  # fmt: skip
    pretraining.save(model.cpu(), tokenizer, arguments.out)
    settings = {k: str(v) for k, v in vars(arguments).items() if k not in ("out", "processes")}
    note = {
        "command": "python -m tasks.pretrain", **settings,
        "corpus_version": CORPUS_VERSION, "generator_version": generator.GENERATOR_VERSION,
        "num_parameters": num_parameters, "num_corpus_tokens": len(stream), "steps_made": steps,
        "final_loss": sum(losses[-5:]) / len(losses[-5:]), "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "train_minutes": round((time.monotonic() - started) / 60, 1),
    }  # fmt: skip
    (arguments.out / "pretraining.json").write_text(json.dumps(note, indent=2) + "\n")
    say(f"saved {arguments.out.name}")


if __name__ == "__main__":
    main()
