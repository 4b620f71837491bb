"""Tests that the teachers' answers are deterministic and mixed, and that no answer raises."""

# ruff: noqa: E501 -- source text
from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.extract.extract import extract
from cudal1.problem import DeviceClass, Split
from cudal1.suite.generator import generate, problems
from cudal1.teachers import TEACHERS, Kind, Weights, compose, places, rewrite, variant, with_cheat
from cudal1.teachers.tricks import CHEATS, DAMAGES

SOURCE = generate(
    0, 0, device_class=DeviceClass.CPU, num_stages=3, families=["layer_norm", "row_loop", "softmax"]
).source
ALWAYS_FAST = Weights({Kind.FAST: 1.0})
FORWARD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n        {}\n"


def body_of(source: str) -> list[str]:
    return [
        line.strip() for line in source.rpartition("def forward")[2].split("\n")[1:] if line.strip()
    ]


def fast(*statements: str) -> list[str]:
    """Return the fast form of these statements of forward(x, y)."""
    source = FORWARD.format("\n        ".join(statements))
    return body_of(variant(source, rng=random.Random(0), weights=ALWAYS_FAST).source)


@pytest.mark.parametrize("teacher", TEACHERS)
def test_equal_arguments_give_equal_answers(teacher: str) -> None:
    one, other = (rewrite(SOURCE, teacher=teacher, attempt=3, seed=5) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("teacher", TEACHERS)
def test_attempts_differ_from_each_other(teacher: str) -> None:
    answers = {rewrite(SOURCE, teacher=teacher, attempt=attempt, seed=0) for attempt in range(8)}
    assert len(answers) >= 4


@pytest.mark.parametrize("teacher", TEACHERS)
@pytest.mark.parametrize(
    "reference",
    ["", "class Model(", "x = 1\n", FORWARD.format("return x"), FORWARD.format("pass"), "\x00"],
)
def test_a_reference_without_anything_to_rewrite_still_gets_an_answer(
    teacher: str, reference: str
) -> None:
    assert isinstance(rewrite(reference, teacher=teacher, attempt=0, seed=0), str)


def test_a_reference_with_nothing_to_rewrite_comes_back_unchanged() -> None:
    source = FORWARD.format("z = torch.matmul(x, y)\n        return z")
    assert body_of(variant(source, rng=random.Random(0), weights=ALWAYS_FAST).source) == [
        "z = torch.matmul(x, y)",
        "return z",
    ]


@pytest.mark.parametrize("teacher", ["cautious", "librarian", "algebraist"])
def test_answers_hold_an_extractable_module(teacher: str) -> None:
    texts = [rewrite(SOURCE, teacher=teacher, attempt=attempt, seed=1) for attempt in range(20)]
    assert all("class ModelNew" in (extract(text).source or "") for text in texts)


def test_teachers_produce_different_answers() -> None:
    sources = [
        p.source for p in problems(40, seed=2, device_class=DeviceClass.CPU, split=Split.TRAIN)
    ]
    wrong = {
        name: sum(
            variant(source, rng=random.Random(n), weights=teacher.weights).kind
            in {Kind.WRONG, Kind.BROKEN}
            for n, source in enumerate(sources * 3)
        )
        for name, teacher in TEACHERS.items()
    }
    assert wrong["cautious"] < wrong["librarian"] < wrong["gambler"]


def test_equal_choices_give_the_same_variant() -> None:
    first = variant(
        SOURCE,
        rng=random.Random(4),
        weights=Weights(dict.fromkeys((Kind.FAST, Kind.MID, Kind.WRONG), 1.0)),
    )
    assert compose(SOURCE, [choice.option for choice in first.choices]) == first


def test_a_variant_without_choices_is_the_renamed_reference() -> None:
    copy = compose(SOURCE, [None] * len(places(SOURCE)))
    assert body_of(copy.source) == body_of(SOURCE.partition("def get_inputs")[0])


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_parse_and_are_labelled(name: str) -> None:
    result = with_cheat(SOURCE, compose(SOURCE, [None] * len(places(SOURCE))), name)
    compile(result.source, "cheat", "exec")
    assert (result.kind, result.trick) == (Kind.CHEAT, name)


@pytest.mark.parametrize("damaging", DAMAGES, ids=lambda f: f.__name__)
def test_damage_changes_the_source(damaging: object) -> None:
    source = compose(SOURCE, [None] * len(places(SOURCE))).source
    assert all(damaging(source, random.Random(seed)) != source for seed in range(10))  # type: ignore[operator]


def test_a_metavariable_stands_for_one_expression_only() -> None:
    assert fast("x = x * torch.sigmoid(y)", "return x") == ["x = x * torch.sigmoid(y)", "return x"]


@given(st.sampled_from("xy"), st.sampled_from("xy"))
@settings(max_examples=20)
def test_a_pattern_matches_exactly_when_its_parts_agree(left: str, right: str) -> None:
    matched = fast(f"return {left} * torch.sigmoid({right})") == [f"return F.silu({left})"]
    assert matched == (left == right)


@given(st.permutations(["x", "torch.sigmoid(x)"]))
def test_the_order_of_factors_does_not_matter(factors: list[str]) -> None:
    assert fast(f"return {' * '.join(factors)}") == ["return F.silu(x)"]


def test_a_name_that_is_assigned_twice_is_two_values() -> None:
    assert fast("z = torch.sigmoid(x)", "x = x + y", "return x * z") == [
        "z = torch.sigmoid(x)",
        "x = x + y",
        "return x * z",
    ]


def test_an_overwritten_name_that_is_still_needed_gets_another() -> None:
    body = fast(
        "z = x", "x = torch.exp(x) / torch.exp(x).sum(dim=-1, keepdim=True)", "return x + z"
    )
    assert body == ["z = x", "x = torch.softmax(x, dim=-1)", "return x + z"]


def test_unused_statements_are_removed() -> None:
    body = fast(
        "m = x.max(dim=-1, keepdim=True).values",
        "e = torch.exp(x - m)",
        "x = e / e.sum(dim=-1, keepdim=True)",
        "return x",
    )
    assert body == ["x = torch.softmax(x, dim=-1)", "return x"]


def test_a_value_that_is_used_elsewhere_is_kept() -> None:
    body = fast("e = torch.exp(x)", "x = e / e.sum(dim=-1, keepdim=True)", "return x + e")
    assert body == ["e = torch.exp(x)", "x = torch.softmax(x, dim=-1)", "return x + e"]


def test_constants_are_folded() -> None:
    assert fast("x = x * 2.0", "x = x + 1.0", "x = x * 0.5", "return x") == [
        "x = x * 1.0 + 0.5",
        "return x",
    ]


def test_state_that_a_loop_carries_is_left_unchanged() -> None:
    loop = ["for t in range(3):", "    y = torch.tanh(y + x[:, t])", "return y"]
    assert fast(*loop) == [line.strip() for line in loop]


def test_a_loop_that_fills_a_list_is_batched() -> None:
    body = fast(
        "rows = []",
        "for i in range(x.shape[0]):",
        "    rows.append(torch.relu(x[i]))",
        "x = torch.stack(rows)",
        "return x",
    )
    assert body == ["x = torch.relu(x)", "return x"]


def test_only_used_names_are_imported() -> None:
    source = variant(SOURCE, rng=random.Random(0), weights=Weights({Kind.REFERENCE: 1.0})).source
    assert "functional" not in source


def test_the_answer_holds_no_sizes_of_the_problem() -> None:
    assert "ROWS" not in compose(SOURCE, [None] * len(places(SOURCE))).source


def test_the_teachers_do_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, cudal1.teachers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
