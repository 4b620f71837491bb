"""Tests of publishing a run's facts from the command line, and of questions to what was published.

tests/ledger/published has buckets; folders do here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.ledger import Ledger
from tests.ledger.conftest import Facts

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with Ledger.open(folder) as ledger:
        ledger.begin("filter")
        Facts().fill(ledger)
        ledger.export()
    return folder


@pytest.mark.usefixtures("data")
def test_published_facts_are_counted_and_can_be_asked_for(run: Run) -> None:
    done = run("publish", "shared", "--writer", "gpu-7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shared: 2 problems, 3 mutants, ")
    assert done.stdout.endswith(" MB, as gpu-7\n")
    query = "select count(*) as n from timing_samples"
    asked = run("sql", "--data", "shared", "--json", query)
    assert json.loads(asked.stdout) == [{"n": 24}]
    assert run("publish", "shared", "--writer", "gpu-7").stdout == (
        "shared: has all of it already\n"
    )


@pytest.mark.usefixtures("data")
def test_the_answer_is_json(run: Run) -> None:
    first = json.loads(run("publish", "shared", "--json").stdout)
    assert first["rows"]["verdicts"] == 4
    assert first["publication"].startswith("publications/")
    again = json.loads(run("publish", "shared", "--json").stdout)
    assert again == {"place": "shared", "publication": None, "rows": {}, "bytes": 0}


@pytest.mark.usefixtures("data")
def test_views_of_a_place_are_listed_without_its_housekeeping(run: Run) -> None:
    run("publish", "shared")
    here, there = (run("sql", "--views", "--json", "--data", at) for at in ("data", "shared"))
    names = [{each["name"] for each in json.loads(done.stdout)} for done in (here, there)]
    assert names[0] == names[1]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("gs://bucket/x",),
            "gs://bucket/x: facts are read from a folder or from s3://BUCKET/PREFIX",
        ),
        (("s3://",), "s3://: names no bucket; write s3://BUCKET/PREFIX"),
        (
            ("shared", "--endpoint", "http://127.0.0.1:9"),
            "shared: a folder has no endpoint; leave it out, or name s3://…",
        ),
        (("shared", "--data", "nowhere"), "nowhere: no ledger here; run `make run` first"),
        (
            ("shared", "--writer", "a/b"),
            "a/b: is no writer's name; use at most 64 letters, digits, dots, dashes and "
            "underscores",
        ),
        (("data/ledger.duckdb/x",), "cannot be written (Not a directory)"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(
    run: Run, arguments: tuple[str, ...], line: str
) -> None:
    done = run("publish", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr
