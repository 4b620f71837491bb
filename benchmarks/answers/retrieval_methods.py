"""Score the similarity of two sources: by the method in use, and by its alternatives.

The methods are token n-grams, names as written or not; the syntax tree, which
`cudal1.llm.reviewer.similarity` has; the mean of both; and the mean last hidden state of the
embedded policy, as it is or less the cases' mean.
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cudal1.llm.reviewer.similarity import likenesses
from cudal1.train.policy import EMBEDDED

Scores = np.ndarray[Any, np.dtype[np.float64]]
"""Scores of each query (a row) with each case (a column)."""
Method = Callable[[Sequence[str], Sequence[str]], Scores]

NGRAM = 3
TOKEN = re.compile(r"\"\"\"|'''|[A-Za-z_]\w*|\d[\w.]*|[^\s\w]")
IMPORTED = re.compile(r"^[ \t]*(?:from[ \t].*)?import[ \t]+(.*)$", re.MULTILINE)
KEPT = {*dir(builtins), *keyword.kwlist, "self", "torch", "nn", "Model", "ModelNew", "forward"}


def by_syntax(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score as `cudal1.llm.reviewer.similarity` does."""
    return np.array([likenesses(query, cases) for query in queries])


def by_tokens(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score by TF-IDF of token n-grams, in which all own names are one."""
    return _by_counts([_grams(q) for q in queries], [_grams(c) for c in cases])


def by_text(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score by TF-IDF of token n-grams as they are written."""
    return _by_counts(
        [_grams(q, as_written=True) for q in queries], [_grams(c, as_written=True) for c in cases]
    )


def by_both(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score by the mean of syntax and tokens."""
    return (by_syntax(queries, cases) + by_tokens(queries, cases)) / 2


def by_embedding(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score by the cosine of the policy's mean hidden states."""
    return _cosines(_embedded(queries), _embedded(cases))


def by_centred_embedding(queries: Sequence[str], cases: Sequence[str]) -> Scores:
    """Score by hidden states less the mean of the cases, which all sources have in common."""
    mean = _embedded(cases).mean(axis=0)
    return _cosines(_embedded(queries) - mean, _embedded(cases) - mean)


METHODS: dict[str, Method] = {
    "tokens": by_tokens,
    "tokens as written": by_text,
    "syntax": by_syntax,
    "syntax and tokens": by_both,
    "embedding": by_embedding,
    "centred embedding": by_centred_embedding,
}


@cache
def _grams(source: str, *, as_written: bool = False) -> Counter[tuple[str, ...]]:
    kept = KEPT | {word for line in IMPORTED.findall(source) for word in re.findall(r"\w+", line)}
    tokens: list[str] = []
    before = ""
    for token in TOKEN.findall(source):
        is_own = token[0].isidentifier() and before != "." and token not in kept
        tokens.append("NAME" if is_own and not as_written else token)
        before = token
    starts = [(n, i) for n in range(1, NGRAM + 1) for i in range(len(tokens) - n + 1)]
    return Counter(tuple(tokens[i : i + n]) for n, i in starts)


def _by_counts(
    queries: Sequence[Counter[tuple[str, ...]]], cases: Sequence[Counter[tuple[str, ...]]]
) -> Scores:
    having = Counter(gram for case in cases for gram in case)
    places = {gram: place for place, gram in enumerate(having)}
    rarest = math.log(len(cases) + 1)

    def weighted(texts: Sequence[Counter[tuple[str, ...]]]) -> Scores:
        rows = np.zeros((len(texts), len(places) + 1))
        for row, text in zip(rows, texts, strict=True):
            unknown = 0.0
            for gram, times in text.items():
                weight = (1 + math.log(times)) * (rarest - math.log(having[gram] + 1))
                if gram in places:
                    row[places[gram]] = weight
                else:
                    unknown += weight * weight
            row[-1] = math.sqrt(unknown)
        return rows

    asked, known = weighted(queries), weighted(cases)
    lengths = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(known, axis=1)[None]
    return asked[:, :-1] @ known[:, :-1].T / np.maximum(lengths, 1e-12)


def _embedded(sources: Sequence[str]) -> Scores:
    return np.array([_mean_state(source) for source in sources])


@cache
def _mean_state(source: str) -> tuple[float, ...]:
    import torch

    model, tokenizer = _policy()
    tokens = tokenizer(source, add_special_tokens=False)["input_ids"]
    given = torch.tensor([tokens[: model.config.max_position_embeddings] or [0]])
    with torch.inference_mode():
        states = model(given, output_hidden_states=True).hidden_states[-1]
    return tuple(states[0].mean(dim=0).double().tolist())


@cache
def _policy() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype="float32")
    return model.eval(), AutoTokenizer.from_pretrained(EMBEDDED)


def _cosines(one: Scores, other: Scores) -> Scores:
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)[None]
    return one @ other.T / np.maximum(lengths, 1e-12)
