"""Tests that a dry run forecasts requests and money, and sends no request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.billing import Try, TryOutcome
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, ConsentError, StoreError
from cudal1.ledger import Ledger
from cudal1.llm.provider import completion_of, request_to
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import generation_prompt
from cudal1.services.asking import described_provider
from cudal1.services.consent import VARIABLE
from cudal1.services.judging import device_facts
from cudal1.settings.params import Params
from cudal1.settings.provider_settings import OpenAISettings
from cudal1.verdict import Status, Verdict
from tasks.cost_forecast import forecast, stop_without_consent

PRICED = OpenAISettings(
    kind="openai",
    model="m",
    base_url="http://127.0.0.1:9/v1",
    api_key_env="NOT_SET",
    temperature=None,
    top_p=None,
    max_tokens=1000,
    max_completion_tokens=None,
    reasoning_effort=None,
    usd_per_million_prompt_tokens=0.0,
    usd_per_million_cached_prompt_tokens=None,
    usd_per_million_completion_tokens=10.0,
    requests_per_minute=None,
    tokens_per_minute=None,
    budget_usd=3.0,
    concurrency=4,
    timeout_s=1.0,
    max_retries=0,
)
NUM_PROBLEMS = 3


def problem(number: int) -> Problem:
    return Problem(
        suite="toy",
        level=1,
        number=number,
        name=f"p{number}",
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=f"# {number}\n",
    )


PROBLEMS = [problem(number) for number in range(NUM_PROBLEMS)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tasks.cost_forecast.DATA", tmp_path)
    monkeypatch.setattr("tasks.cost_forecast.admitted_problems", lambda split: PROBLEMS)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def params() -> Params:
    shipped = Params.load(Path(__file__).parents[2] / "params.yaml")
    changes: dict[str, Any] = {"providers": {"priced": PRICED}, "attempts": 20, "successes": 2}
    return shipped.model_copy(update={"generate": shipped.generate.model_copy(update=changes)})


def row(said: str) -> list[str]:
    line = next(line for line in said.splitlines() if "priced" in line)
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_a_first_run_forecasts_every_request(
    params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    forecast(params, None)
    assert row(capsys.readouterr().out) == [
        "priced",
        "0",
        "6 to 60",
        "unknown",
        "0.6000",
        "0.0000",
        "3",
    ]


def test_known_answers_cost_nothing_again(
    params: Params, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    provider = described_provider("priced", PRICED)
    with Ledger.open(here) as ledger:
        ledger.begin("generate@priced")
        for attempt in range(2):  # of the first problem: one failure, one success
            _answer(ledger, params, provider, attempt)
    forecast(params, "priced")
    found = row(capsys.readouterr().out)
    assert found[1:3] == ["2", "5 to 58"]
    assert found[3] == "0.0050 to 0.0580"
    assert found[5] == "0.0020"


def test_a_forecast_needs_no_key_and_writes_nothing(
    params: Params, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    forecast(params, "priced")
    assert list(here.iterdir()) == []


def test_a_run_without_consent_is_stopped_with_its_forecast(params: Params) -> None:
    with pytest.raises(ConsentError, match=rf"6 to 60 new questions, for 0\.60 .*{VARIABLE}=0\.6,"):
        stop_without_consent(params, "priced")


def test_a_run_with_consent_continues(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.1")
    stop_without_consent(params, "priced")


def test_known_answers_need_no_consent(params: Params, here: Path) -> None:
    provider = described_provider("priced", PRICED)
    section = params.generate.model_copy(update={"attempts": 1})
    one = params.model_copy(update={"generate": section})
    with Ledger.open(here) as ledger:
        ledger.begin("generate@priced")
        for each in PROBLEMS:
            _answer(ledger, one, provider, 0, each)
    stop_without_consent(one, "priced")


def _answer(
    ledger: Ledger, params: Params, provider: Any, attempt: int, about: Problem = PROBLEMS[0]
) -> None:
    facts = device_facts(params)
    prompt = generation_prompt(about, style=params.generate.prompts, facts=facts)
    request = request_to(
        provider,
        stage="generate",
        problem=about,
        prompt=prompt,
        attempt=attempt,
        seed=params.generate.seed,
    )
    candidate = Candidate(problem_id=about.id, source=f"x = {attempt}")
    ledger.add_completion(
        completion_of(request, provider="priced", text="x", finish_reason="stop"), candidate, None
    )
    ledger.add_try(
        Try(
            request_id=request.id,
            sent_at=str(attempt),
            stage="generate@priced",
            provider="priced",
            outcome=TryOutcome.ANSWERED,
            cost_usd=0.001,
            at_most_usd=0.01,
        )
    )
    ledger.add_verdict(_verdict(candidate, is_good=attempt == 1), [])


def _verdict(candidate: Candidate, *, is_good: bool) -> Verdict:
    measured = Measurement(
        baseline=Baseline.EAGER,
        speedup=2.0,
        certified=2.0,
        alpha=0.01,
        num_quads=9,
        bucket_medians=(2.0,),
        bucket_variance=0.0,
        is_stable=True,
        reference_us=2.0,
        candidate_us=1.0,
    )
    return Verdict(
        problem_id=candidate.problem_id,
        candidate_id=candidate.id,
        protocol_id="q",
        device_kind="cpu",
        device_id="0",
        status=Status.CORRECT if is_good else Status.CRASHED,
        reason=None if is_good else "no",
        measurement=measured if is_good else None,
        judged_at="2026-01-01T00:00:00Z",
        judge_s=0.1,
    )


def test_an_unknown_provider_is_refused_with_the_known_names(params: Params) -> None:
    with pytest.raises(ConfigError, match="no provider nobody; it has priced"):
        forecast(params, "nobody")


def test_a_damaged_ledger_is_not_taken_for_a_missing_one(params: Params, here: Path) -> None:
    (here / "shards" / "filter").mkdir(parents=True)
    (here / "shards" / "filter" / "completions.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(StoreError):
        forecast(params, None)
