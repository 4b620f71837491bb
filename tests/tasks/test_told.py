"""Tests of the line that a stage ends with."""

from __future__ import annotations

from tasks.stage import told


def test_counts_marks_and_words_are_written_for_people() -> None:
    numbers = {
        "num_admitted": 1300,
        "num_rejected": 0,
        "night": 3,
        "reviewer": "off",
        "heldout_success": 0.7222,
        "heldout_success_low": 0.6,
        "heldout_success_high": 0.83,
        "heldout_num_answers": 144,
    }
    assert told(numbers) == [
        "1,300 admitted",
        "night: 3",
        "reviewer: off",
        "held-out success: 0.722 (0.6 to 0.83)",
        "held-out answers: 144",
    ]
