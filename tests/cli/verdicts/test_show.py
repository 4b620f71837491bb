"""Tests of the text of a verdict for a person."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from cudal1.baseline import Baseline
from cudal1.cli.options.settings import choose
from cudal1.cli.verdicts.show import WORDS, Row, show, verdict_rows
from cudal1.harness.shared.wire import LAYERS
from cudal1.measurement import Measurement
from cudal1.verdict import (
    SEEN,
    Correctness,
    FlagSource,
    HackFlag,
    Phases,
    Properties,
    Status,
    Verdict,
)

MEASURED: dict[str, Any] = {
    "baseline": Baseline.EAGER,
    "speedup": 1.52,
    "certified": 1.4,
    "alpha": 0.01,
    "num_quads": 11,
    "bucket_medians": (1.5, 1.52, 1.55),
    "bucket_variance": 0.0006,
    "is_stable": True,
    "reference_us": 152.0,
    "candidate_us": 100.0,
}
DECIDING = HackFlag(kind="early_done", source=FlagSource.GUARD, evidence="call 2")
NOTE = HackFlag(kind="fallback", source=FlagSource.SCREEN, evidence="line 3: except")


def verdict(status: Status = Status.CORRECT, **parts: Any) -> Verdict:
    reason = None if status is Status.CORRECT else "so it is"
    return Verdict(
        problem_id="p",
        candidate_id="c",
        protocol_id="0123",
        device_kind="cpu",
        device_id="d",
        status=status,
        reason=reason,
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=0.5,
        **parts,
    )


WAITED = {"starting": 2.0, "trying the reference": 1.0, "judging": 0.5}


def shown(found: Verdict) -> dict[str, str]:
    rows = verdict_rows(found, choose(None, "cpu", "cpu", None), WAITED)
    return {row.label: row.text for row in rows}


@pytest.mark.parametrize("status", Status)
def test_the_status_comes_first_in_words(status: Status) -> None:
    flags = (DECIDING,) if status is Status.HACKED else ()
    rows = verdict_rows(verdict(status, flags=flags), choose(None, "cpu", "cpu", None), WAITED)
    assert rows[0].text.startswith(WORDS[status])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "CORRECT and certified 1.40x faster"),
        ({"certified": 0.8}, "CORRECT but slower: certified 0.80x"),
        ({"certified": 1.0, "speedup": 1.01}, "CORRECT; no difference shown"),
        ({"certified": 1.0}, "CORRECT; no gain certified"),
        ({"certified": 1.0, "alpha": None, "is_stable": False}, "too unsteady"),
        ({"certified": 1.0, "is_confirmed": False}, "a second measurement disagreed"),
        ({"certified": 1.0, "doubt": "once_a_burst"}, "a part is saved once a burst"),
        ({"certified": 1.0, "doubt": "again", "is_confirmed": False}, "measured again"),
    ],
)
def test_the_headline_holds_the_certified_speedup(changes: dict[str, Any], said: str) -> None:
    measurement = Measurement.model_validate({**MEASURED, **changes})
    assert said in shown(verdict(measurement=measurement))["verdict"]


def test_stages_are_listed_by_their_seconds_the_longest_first() -> None:
    spent = Phases(starting_s=0.02, compiling_s=41.0, checking_s=2.14, measuring_s=4.9)
    found = verdict().model_copy(update={"judge_s": 48.06, "phases": spent})
    rows = verdict_rows(found, choose(None, "cpu", "cpu", None), {"starting": 2.0, "judging": 50.0})
    took = {row.label: row.text for row in rows}["took"]
    assert took == (
        "52.0 s: 41.0 s compiling, 4.9 s measuring, 2.1 s checking, 2.0 s starting, 1.9 s judging"
    )


def test_all_that_was_waited_for_is_counted() -> None:
    assert shown(verdict())["took"] == "3.5 s: 2.0 s starting, 1.0 s trying the reference, " + (
        "0.5 s judging"
    )


def test_a_measurement_names_the_compared_sides() -> None:
    found = shown(verdict(measurement=Measurement.model_validate(MEASURED)))
    assert "estimated 1.520x" in found["speedup"]
    assert "certified 1.40x at 99 %" in found["speedup"]
    for part in ("eager", "152.0 us", "100.0 us", "11 quads"):
        assert part in found["compared"]
    assert found["judged on"] == "cpu, protocol cpu 0123"


def test_an_error_is_shown_against_its_tolerance() -> None:
    off = Correctness(num_inputs=2, stage=0, max_relative_l2=0.01, max_scaled_error=12.3)
    found = shown(verdict(Status.INCORRECT, correctness=off))
    assert found["error"].startswith("worst element at 12.3 times its tolerance")
    assert found["outputs"].startswith("2 right")
    assert found["because"] == "so it is"


def test_decisive_flags_stand_apart_from_advice() -> None:
    found = shown(verdict(Status.HACKED, flags=(NOTE, DECIDING)))
    assert found["flag"] == "early_done (guard): call 2"
    assert found["note"] == "fallback, advisory: line 3: except"


def test_missing_layers_of_the_sandbox_are_named() -> None:
    most = tuple(layer for layer in LAYERS if layer != "own_network")
    assert shown(verdict(sandbox=LAYERS))["sandbox"] == f"{len(LAYERS)} of {len(LAYERS)} layers"
    assert shown(verdict(sandbox=most))["sandbox"].endswith("layers; without own_network")
    assert shown(verdict(sandbox=(*LAYERS, "unsafe")))["sandbox"].endswith("; UNSAFE")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_of_a_candidate_does_not_steer_a_terminal(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, color_system=None, width=200)
    show([Row("because", "\x1b]0;owned\x07 [red]loud[/red]\nverdict  CORRECT")], console)
    printed = out.getvalue()
    assert "\x1b]" not in printed
    assert "\x07" not in printed
    assert "[red]loud[/red] verdict CORRECT" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", list(Properties.model_fields))
def test_properties_of_a_candidate_are_shown_if_they_say_anything(name: str, value: bool) -> None:
    found = shown(verdict(properties=Properties.model_validate({name: value})))
    is_plain = (name, value) == ("copies_reference", False)
    assert found.get("seen") == (None if is_plain else SEEN[name, value])
