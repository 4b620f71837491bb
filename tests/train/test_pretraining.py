"""Tests of the loop that trains a new policy, on text that is still being made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cudal1.errors import TrainingError
from cudal1.train import pretraining
from tasks import pretrain

CPU = torch.device("cpu")


def piece(first: int, *lengths: int) -> pretraining.Piece:
    """Return documents that begin with 100, then count up from `first`."""
    tokens = [t for length in lengths for t in (100, *range(first, first + length - 1))]
    return np.array(tokens, dtype=np.int16), list(lengths)


def whole(*pieces: pretraining.Piece, capacity: int = 1000) -> pretraining.Corpus:
    corpus = pretraining.Corpus(pieces, capacity=capacity, device=CPU)
    corpus.take_in(at_least=10**9)
    return corpus


def test_windows_begin_with_a_document_and_continue_into_the_next() -> None:
    corpus = whole(piece(0, 4, 5), piece(50, 6))
    rows = corpus.draw(200, 7, torch.Generator().manual_seed(1)).tolist()
    assert {tuple(row) for row in rows} == {(100, 0, 1, 2, 100, 0, 1), (100, 0, 1, 2, 3, 100, 50)}


def test_text_beyond_the_capacity_is_left_out_and_counted() -> None:
    corpus = whole(piece(0, 40), piece(0, 40), piece(0, 40), piece(0, 10), capacity=100)
    assert (corpus.num_tokens, corpus.num_documents, corpus.is_whole) == (80, 2, True)
    assert corpus.num_dropped == 50


@pytest.mark.parametrize(("num_pieces", "num_warnings"), [(4, 0), (7, 1)])
def test_the_number_of_omitted_documents_is_reported_once(
    tiny_policy: Path, caplog: pytest.LogCaptureFixture, num_pieces: int, num_warnings: int
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype="float32")
    pretraining.train(
        model,
        whole(*(piece(5, 40) for _ in range(num_pieces)), capacity=160),
        steps=2,
        rows=1,
        context=16,
        learning_rate=0.01,
        seed=0,
        on_log=lambda *_: None,
    )
    warnings = [record.getMessage() for record in caplog.records if record.name == "cudal1"]
    assert len(warnings) == num_warnings
    assert all("120 tokens of text were left out" in line for line in warnings)


def test_training_does_not_wait_for_text_that_it_does_not_need_yet() -> None:
    go_on = threading.Event()

    def slowly() -> Iterator[pretraining.Piece]:
        yield piece(0, 40)
        go_on.wait(60)
        yield piece(0, 40)

    corpus = pretraining.Corpus(slowly(), capacity=1000, device=CPU)
    corpus.take_in(at_least=40)
    assert corpus.num_tokens == 40
    assert not corpus.is_whole
    go_on.set()
    corpus.take_in(at_least=41)
    assert corpus.num_tokens == 80


def test_a_corpus_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(TrainingError, match="40 tokens do not fill a window of 41"):
        whole(piece(0, 40)).draw(2, 41, torch.Generator())


@pytest.mark.slow
def test_the_loss_falls(tiny_policy: Path) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype="float32")
    losses: list[float] = []
    steps = pretraining.train(
        model,
        whole(*(piece(5, 20) for _ in range(20))),
        steps=200,
        rows=4,
        context=16,
        learning_rate=0.01,
        seed=0,
        on_log=lambda step, loss, rate: losses.append(loss),
    )
    assert steps == 200
    assert losses[-1] < 0.5 * losses[0] or losses[-1] < 0.1


def test_an_empty_folder_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pretrain", "--out", ""])
    with pytest.raises(SystemExit):
        pretrain.main()
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("--out: it is empty; give a folder, or leave the option out")
