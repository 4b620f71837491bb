"""Tests that, despite failures and a kill, every answer is recorded once and the bill is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.answers.bills import measure

pytestmark = pytest.mark.slow

NUM_REQUESTS = 54


@pytest.mark.parametrize("forgets_keys", [False, True])
def test_every_answer_is_recorded_once_and_the_bill_equals_the_server_s(
    tmp_path: Path, forgets_keys: bool
) -> None:
    found = measure(tmp_path, num_requests=NUM_REQUESTS, num_kills=2, forgets_keys=forgets_keys)
    counts = {name: found[name] for name in ("num_answers", "num_distinct", "num_texts")}
    assert counts == dict.fromkeys(counts, NUM_REQUESTS)
    assert found["num_failed"] == 0
    assert found["num_kills"] == 2
    # the client cannot know that a server charges again for an answer it gave before: that is in
    # doubt
    assert found["is_within"]
    assert found["is_exact"] or forgets_keys
