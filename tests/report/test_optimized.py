"""Tests of the page of one optimized module: everything is escaped, and nothing is missing."""

from __future__ import annotations

import re

from cudal1.report.optimized import NUM_TRIED, AuthorRow, OptimizedInput, Tried, optimized_html

EVIL = "<script>alert('x')</script>"
TRIED = Tried(author="fuser", outcome="correct", certified=1.5, said="It is correct.")


def page(**changes: object) -> str:
    given = OptimizedInput(
        module="model.py",
        headline="CORRECT and certified 1.50x faster",
        facts={"device": "cpu"},
        verdict=(("speedup", "certified 1.50x"),),
        reference="class Model: pass\n",
        version="class ModelNew: pass\n",
        profile=("one call: 5 us",),
        invariants=("input 0: positive",),
        authors=(
            AuthorRow(
                author="fuser",
                num_answers=4,
                num_unusable=1,
                num_copies=1,
                num_judged=2,
                num_correct=1,
                best=1.5,
                cost_usd=0.0,
            ),
        ),
        tried=(TRIED,),
        stopped="the 5 minutes are over",
    )
    return optimized_html(given.model_copy(update=changes))


def test_every_text_is_escaped() -> None:
    tried = TRIED.model_copy(update={"author": EVIL, "said": EVIL, "outcome": EVIL})
    shown = page(
        module=EVIL,
        headline=EVIL,
        facts={EVIL: EVIL},
        verdict=((EVIL, EVIL),),
        reference=EVIL,
        version=EVIL,
        profile=(EVIL,),
        invariants=(EVIL,),
        tried=(tried,),
        stopped=EVIL,
    )
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    shown = page()
    assert "default-src 'none'" in shown
    assert not re.search(r"\b(src|href)=[\"']?(https?:|//)", shown)


def test_the_page_shows_verdict_both_sources_curve_and_what_was_tried() -> None:
    shown = page()
    for part in ("certified 1.50x", "class Model:", "class ModelNew:", "<svg", "It is correct."):
        assert part in shown


def test_without_a_proven_version_the_page_says_so() -> None:
    shown = page(verdict=(), version=None, tried=())
    assert "No version was proven faster" in shown
    assert "no program was judged" in shown


def test_left_out_rows_are_counted() -> None:
    shown = page(tried=(TRIED,) * (NUM_TRIED + 7))
    assert "7 earlier ones are left out" in shown


def test_equal_input_makes_equal_bytes() -> None:
    assert page() == page()
