"""Tests of the line by which a problem's file names the class that it was written from."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from cudal1.kept import class_source_id
from cudal1.origin import Origin, is_edited, origin_of, source_id_in, stem_of, with_origin
from tests.capturing import layers

ORIGIN = Origin(replaces="package.layers:Norm", source_id="0123456789abcdef")
TEXT = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize("text", [TEXT, TEXT.rstrip("\n"), ""])
def test_a_text_names_the_origin_that_it_was_written_with(text: str) -> None:
    written = with_origin(text, ORIGIN)
    assert written.startswith(text)
    assert origin_of(written) == ORIGIN
    assert not is_edited(written)


@pytest.mark.parametrize(
    "change", [("pass", "x = 1"), ("0123456789abcdef", "f" * 16), ("Norm", "")]
)
def test_an_edited_text_has_lost_its_origin(change: tuple[str, str]) -> None:
    edited = with_origin(TEXT, ORIGIN).replace(*change)
    assert origin_of(edited) is None
    assert is_edited(edited)


def test_a_text_of_ones_own_has_no_origin() -> None:
    assert origin_of(TEXT) is None
    assert not is_edited(TEXT)


def test_a_source_is_found_in_a_text_as_inspect_reads_it() -> None:
    text = Path(layers.__file__).read_text()
    classes = [each for each in vars(layers).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__ == layers.__name__]
    assert len(own) > 5
    for each in own:
        assert source_id_in(text, each.__name__) == class_source_id(inspect.getsource(each))


@pytest.mark.parametrize(
    "text",
    ["from other import Norm\n", "class Norm: ...\nclass Norm: ...\n", "class Norm(:\n"],
    ids=["imported", "twice", "no Python"],
)
def test_a_class_that_a_text_does_not_define_once_has_no_source(text: str) -> None:
    assert source_id_in(text, "Norm") is None


def test_names_of_classes_become_names_of_files() -> None:
    assert [stem_of(name) for name in ("GatedNorm", "LlamaRMSNorm", "T5Block", "Plain")] == [
        "gated_norm",
        "llama_rms_norm",
        "t5_block",
        "plain",
    ]
