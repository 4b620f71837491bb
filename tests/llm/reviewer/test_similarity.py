"""Tests that the nearest cases are shown, for any form of the code and any order of the cases."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.files.python_file import MAX_PARSED
from cudal1.hack_case import CaseOrigin, HackCase
from cudal1.llm.reviewer.hack_cases import shipped_cases
from cudal1.llm.reviewer.similarity import MAX_FEATURES, likenesses, most_similar
from tests.harness.screen.test_screen import HOSTILE

CASES = shipped_cases()
EACH = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.kind}-{i}" for i, case in enumerate(CASES)]
)
CACHED = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.answers = dict()

    def forward(self, given):
        where = given.data_ptr()
        if where not in self.answers:
            self.answers[where] = torch.tanh(given) * 2
        return self.answers[where]
"""


def case(source: str) -> HackCase:
    return HackCase(kind="x", source=source, evidence="x", origin=CaseOrigin.CONFIRMED)


@EACH
def test_a_case_is_most_similar_to_itself(case: HackCase) -> None:
    assert most_similar(case.source, CASES, 1) == [case]
    assert max(likenesses(case.source, [case.source for case in CASES])) == pytest.approx(1)


@EACH
def test_other_names_do_not_hide_a_case(case: HackCase) -> None:
    hidden = case.source
    for name in ("self.cache", "self.calls", "result", "shape", "stream", "answer", "_frozen"):
        hidden = hidden.replace(name, f"{name}_{len(name)}x")
    assert most_similar(hidden, CASES, 1) == [case]


def test_a_new_cheat_is_most_similar_to_its_kind() -> None:
    assert most_similar(CACHED, CASES, 1)[0].kind == "pointer_cache"


def test_renamed_imports_change_no_similarity() -> None:
    renamed = CACHED.replace("import torch\n", "import torch as t\n").replace(
        "torch.tanh", "t.tanh"
    )
    sources = [case.source for case in CASES]
    assert likenesses(renamed, sources) == likenesses(CACHED, sources)


def test_comments_and_docstrings_change_no_similarity() -> None:
    said = '"""An honest kernel: os.fork, threading."""\n# torch.cuda.Stream()\n' + CACHED
    sources = [case.source for case in CASES]
    assert likenesses(said, sources) == likenesses(CACHED, sources)


def test_the_order_of_cases_changes_nothing() -> None:
    mixed = list(CASES)
    random.Random(0).shuffle(mixed)
    assert most_similar(CACHED, mixed, 5) == most_similar(CACHED, CASES, 5)


def test_no_case_is_shown_twice() -> None:
    assert most_similar(CACHED, [*CASES, *CASES], 3) == most_similar(CACHED, CASES, 3)


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_the_number_of_shown_cases_is_limited_by_the_request_and_the_supply(count: int) -> None:
    assert len(most_similar(CACHED, CASES, count)) == min(count, len(CASES))


def test_no_case_is_shown_where_there_is_none() -> None:
    assert most_similar(CACHED, [], 3) == []


def test_equally_similar_cases_have_a_fixed_order() -> None:
    twins = [case(f"x = {number}\n") for number in (7, 8, 9)]
    assert most_similar("y = 5\n", twins, 3) == sorted(twins, key=lambda case: case.id)


def test_code_that_does_not_parse_is_compared_by_its_words() -> None:
    broken = f"{CACHED}\ndef broken(:\n"
    assert "cache" in most_similar(broken, CASES, 1)[0].kind


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.lists(st.text(max_size=80), max_size=4))
def test_similarity_is_between_none_and_all_for_any_texts(text: str, others: list[str]) -> None:
    scores = likenesses(text, others)
    assert len(scores) == len(others)
    assert all(0 <= score <= 1 for score in scores)


LONG = {
    "a long name": "import " + "a" * 40_000 + " as b\n" + "b.c(b)\n" * 7_000,
    "a long method": "class A:\n def __" + "a" * 40_000 + "__(self):\n" + "  b(c)\n" * 7_000,
    "long chains": ("x" + ".aa" * 300 + "\n") * 100,
    "many names": "".join(f"x.a{i}(b={i})\n" for i in range(6_000)),
    "many words": "x = '" + "".join(f"a{i} " for i in range(14_000)) + "'",
}


@pytest.mark.parametrize("what", [*HOSTILE, *LONG])
def test_a_hostile_source_is_compared_within_seconds(what: str) -> None:
    source = HOSTILE[what] if what in HOSTILE else LONG[what]
    started = time.process_time()
    assert len(most_similar(source, [*CASES, case(source + " ")], 3)) == 3
    assert time.process_time() - started < 8


@pytest.mark.slow
def test_time_grows_at_most_linearly_with_the_source() -> None:
    def cost(num_lines: int) -> float:
        laps: list[float] = []
        for lap in range(3):
            started = time.process_time()
            likenesses(f"x = {lap}\n" + "y.append(f(x, z=[1, 2]))\n" * num_lines, ["x"])
            laps.append(time.process_time() - started)
        return min(laps)

    assert MAX_PARSED > 26 * 3_600
    assert cost(3_600) < 10 * cost(900) + 0.05


def test_five_hundred_known_cases_are_searched_in_a_moment() -> None:
    many = [case(f"{one.source}\nx{i} = f{i}({i})\n") for i in range(13) for one in CASES][:500]
    most_similar(CACHED, many, 3)
    started = time.process_time()
    for number in range(10):
        most_similar(f"{CACHED}\nx = {number}\n", many, 3)
    assert (time.process_time() - started) / 10 < 0.1


def test_a_source_of_too_many_features_is_still_most_similar_to_itself() -> None:
    large = case("".join(f"x.a{i}(b{i})\n" for i in range(2 * MAX_FEATURES))[:MAX_PARSED])
    assert most_similar(large.source, [*CASES, large], 1) == [large]
