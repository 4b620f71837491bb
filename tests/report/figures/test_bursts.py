"""Tests of the picture of one verdict's timing."""

from __future__ import annotations

import re

import polars as pl
import pytest

from cudal1.report.figures.bursts import burst_figure, closest_figure
from cudal1.report.figures.theme import BLUE, ORANGE, PURPLE
from cudal1.report.limits import NUM_QUADS


@pytest.fixture
def timed(made):
    """Return verdicts with samples: each quad's reference takes `speedup` times its candidate."""

    def timed(num_quads: int, *, speedups=(2.0,), details=True, slow=0):
        names = [f"c{i}" for i in range(len(speedups))]
        return made.build(
            {
                "problems": [made.problem()],
                "verdicts": [
                    made.verdict("p11", name, value)
                    for name, value in zip(names, speedups, strict=True)
                ],
                "details": [
                    {
                        **dict.fromkeys(made.schemas["details"]),
                        "candidate_id": name,
                        "bucket_medians": [2.0] * 7,
                    }
                    for name in names
                    if details
                ],
                "samples": [
                    {
                        "candidate_id": name,
                        "session": 0,
                        "quad": quad,
                        "position": position,
                        "role": role,
                        "num_calls": 1,
                        "burst_us": 50.0,
                        "net_us": (40.0 if role == "reference" else 20.0)
                        + (900 if quad < slow else 0),
                    }
                    for name in names
                    for quad in range(num_quads)
                    for position, role in enumerate(
                        ("reference", "candidate", "candidate", "reference")
                    )
                ],
            }
        )

    return timed


def strokes(svg: str, colour: str) -> int:
    """Return the number of strokes in the data's colour, legend aside."""
    paths = re.findall(rf'<path[^>]*stroke="{colour}"[^>]*', svg)
    return max(
        (
            len(re.findall(r"M", match[1]))
            for p in paths
            if (match := re.search(r' d="([^"]*)"', p))
        ),
        default=0,
    )


def drawn(given):
    figure = burst_figure(given, {"candidate_id": "c0", "speedup": 2.1, "certified": 2.0}, name="x")
    assert figure is not None
    return figure


def test_every_burst_and_bucket_is_a_stroke(timed):
    figure = drawn(timed(14))
    assert strokes(figure.svg, BLUE) == strokes(figure.svg, ORANGE) == 28
    assert strokes(figure.svg, PURPLE) == 7


def test_a_verdict_without_known_buckets_is_drawn_without_them(timed):
    assert strokes(drawn(timed(14, details=False)).svg, PURPLE) <= 1


def test_some_of_many_quads_are_drawn_and_the_caption_names_them(timed):
    figure = drawn(timed(5 * NUM_QUADS))
    assert strokes(figure.svg, BLUE) == 2 * NUM_QUADS
    assert f"every 5th quad of {5 * NUM_QUADS}" in figure.caption


def test_stalls_leave_the_frame_and_are_counted(timed):
    figure = drawn(timed(NUM_QUADS, slow=1))
    assert "slow bursts lie above the frame" in figure.caption


def test_a_verdict_without_samples_is_not_drawn(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c0")]})
    verdict = {"candidate_id": "c0", "speedup": 2.1, "certified": 2.0}
    assert burst_figure(given, verdict, name="x") is None


def test_the_closest_gain_is_the_smallest_certified_one(timed):
    figure = closest_figure(timed(3, speedups=(1.0, 1.05, 9.0)))
    assert figure is not None
    assert "candidate c1:" in figure.caption


def test_a_confirmation_is_not_drawn_as_the_measurement(timed):
    given = timed(14)
    later = given.samples.with_columns(session=pl.lit(1, pl.Int64))
    again = given.model_copy(update={"samples": given.samples.vstack(later)})
    assert strokes(drawn(again).svg, BLUE) == 28
