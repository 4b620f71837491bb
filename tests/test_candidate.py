"""Tests that a candidate's id depends on its problem and its source."""

from __future__ import annotations

from cudal1.candidate import Candidate, Completion


def test_a_candidate_is_identified_by_problem_and_source() -> None:
    one = Candidate(problem_id="p", source="x = 1")
    assert one.id == Candidate(problem_id="p", source="x = 1").id
    assert one.id != Candidate(problem_id="p", source="x = 2").id
    assert one.id != Candidate(problem_id="q", source="x = 1").id


def test_a_completion_keeps_its_text_unchanged() -> None:
    text = "```python\r\nx = 'ä'\n```  \n\x00"
    completion = Completion(
        id="c",
        stage="generate@a",
        provider="a",
        problem_id="p",
        prompt_id="q",
        template_id="t",
        attempt=0,
        text=text,
        finish_reason="stop",
    )
    assert Completion.model_validate_json(completion.model_dump_json()).text == text
