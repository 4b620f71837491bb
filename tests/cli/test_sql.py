"""Tests of questions to the ledger from the command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from cudal1.ledger import Ledger

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "data"
    with Ledger.open(folder):
        pass
    return folder


@pytest.fixture
def ledger(empty: Path, tmp_path: Path) -> None:
    shutil.copytree(empty, tmp_path / "data")


@pytest.mark.usefixtures("ledger")
def test_answers_to_a_question_are_json(run: Run) -> None:
    done = run("sql", "select 1 as one, 'nan'::float as none", "--json")
    assert json.loads(done.stdout) == [{"one": 1, "none": None}], done.stderr


VALUES = {
    "sum(i)": 10,
    "1::bigint": 1,
    "170141183460469231731687303715884105727": 170141183460469231731687303715884105727,
    "340282366920938463463374607431768211455::uhugeint": 340282366920938463463374607431768211455,
    "repeat('9', 60)::bignum": 10**60 - 1,
    "12345678901234567890.123456789::decimal(38, 9)": Decimal("12345678901234567890.123456789"),
    "0.1::double": Decimal("0.1"),
    "'nan'::float": None,
    "'-inf'::double": None,
    "['inf'::double, 1, null]": [None, Decimal("1.0"), None],
    "date '2026-01-02'": "2026-01-02",
    "date '0044-03-15 (BC)'": "0044-03-15 (BC)",
    "timestamp '2026-01-02 03:04:05.6'": "2026-01-02 03:04:05.6",
    "timestamp_ns '2026-01-02 03:04:05.123456789'": "2026-01-02 03:04:05.123456789",
    "time '03:04:05'": "03:04:05",
    "interval '1 month 2 days'": "1 month 2 days",
    "uuid '12345678-1234-5678-1234-567812345678'": "12345678-1234-5678-1234-567812345678",
    "'\\xAA'::blob": "\\xAA",
    "'0101'::bit": "0101",
    "'b'::enum('a', 'b')": "b",
    "[1, 2]::int[2]": [1, 2],
    "{'a': 1.5, 'b': [{'c': 2::hugeint}]}": {"a": Decimal("1.5"), "b": [{"c": 2}]},
    "map {'k': 1}": {"k": 1},
    "union_value(n := 1)": {"n": 1},
    "'{\"a\": [1]}'::json": {"a": [1]},
    "'NaN, \"-Infinity\" é' || chr(10)": 'NaN, "-Infinity" é\n',
    "true": True,
    "null": None,
}


@pytest.mark.usefixtures("ledger")
def test_each_type_of_value_has_its_json_form(run: Run) -> None:
    columns = ", ".join(f"{value} as c{number}" for number, value in enumerate(VALUES))
    done = run("sql", "--json", f"select {columns} from range(5) t(i)")
    assert done.stdout.isascii()
    (row,) = json.loads(
        done.stdout, parse_float=Decimal, parse_constant=lambda name: pytest.fail(name)
    )
    assert dict(zip(VALUES, row.values(), strict=True)) == VALUES


@pytest.mark.usefixtures("ledger")
def test_values_of_types_that_polars_lacks_are_shown(run: Run) -> None:
    question = (
        "select interval '1 month' i, date '10000-01-01' d, union_value(n := 7) u, 8::bignum b, "
        "340282366920938463463374607431768211455::uhugeint h, map {[1]: 2} m"
    )
    done = run("sql", question)
    assert (done.returncode, done.stderr) == (0, "")
    for shown in (
        "1 month",
        "10000-01-01",
        " 7 ",
        " 8 ",
        "340282366920938463463374607431768211455",
    ):
        assert shown in done.stdout


@pytest.mark.usefixtures("ledger")
def test_columns_with_equal_names_are_all_shown(run: Run) -> None:
    question = "select 1 as a, 2 as a_1, 3 as a, 4 as a"
    assert json.loads(run("sql", "--json", question).stdout) == [
        {"a": 1, "a_1": 2, "a_2": 3, "a_3": 4}
    ]
    assert "a_3" in run("sql", question).stdout


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("question", ["select 1 where false", "set threads = 1", ";"])
def test_no_rows_are_an_empty_list(run: Run, question: str) -> None:
    done = run("sql", "--json", question)
    assert (done.returncode, done.stdout) == (0, "[]\n")


@pytest.mark.usefixtures("ledger")
def test_a_question_that_fails_at_a_late_row_prints_no_partial_answer(run: Run) -> None:
    question = "select if(i = 99999, 'x', '1')::int from range(100000) t(i)"
    done = run("sql", "--json", question)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


ENDLESS = "copy (select 1) to 'begun.csv'; from range(1_000_000_000) a, range(1000) b select sum(a)"


@pytest.mark.usefixtures("ledger")
def test_a_ctrl_c_ends_a_long_question(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    child = subprocess.Popen(
        [*command, "sql", ENDLESS],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "begun.csv").exists():
        assert child.poll() is None, child.stderr and child.stderr.read()
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60) == ("", "interrupted\n")
    assert child.returncode == 130


@pytest.mark.usefixtures("ledger")
def test_a_wrong_question_gives_one_line(run: Run) -> None:
    done = run("sql", "select * from nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("SQL: ")


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("question", "hint"),
    [
        ("from bests", 'Did you mean "best"?'),
        ("select certfied from best", 'Candidate bindings: "certified"'),
    ],
)
def test_the_database_s_hint_is_passed_on(run: Run, question: str, hint: str) -> None:
    done = run("sql", question)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert hint in done.stderr


@pytest.mark.usefixtures("ledger")
def test_a_single_row_shows_long_texts_whole(run: Run) -> None:
    done = run("sql", "select 1 as one, 'class ModelNew:' || chr(10) || repeat('x', 300) as source")
    assert done.stdout == f"one: 1\nsource:\nclass ModelNew:\n{'x' * 300}\n\n"


@pytest.mark.usefixtures("ledger")
def test_a_parquet_file_keeps_types(run: Run, tmp_path: Path) -> None:
    question = (
        "select sum(i) as total, 2::uhugeint as wide, timestamp '2026-01-02 03:04:05' as at, "
        'date \'2026-01-02\' as day, true as yes, [1.5] as list, i % 2 as "an ""odd"" name" '
        "from range(9007199254740993, 9007199254740994) t(i) group by i"
    )
    done = run("sql", question, "--out", "typed.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    frame = pl.read_parquet(tmp_path / "typed.parquet")
    assert frame["total"].to_list() == [9007199254740993]
    assert frame.schema == {
        "total": pl.Decimal(38, 0),
        "wide": pl.Decimal(38, 0),
        "at": pl.Datetime("us"),
        "day": pl.Date,
        "yes": pl.Boolean,
        "list": pl.List(pl.Decimal(2, 1)),
        'an "odd" name': pl.Int64,
    }


@pytest.mark.usefixtures("ledger")
def test_views_are_listed_with_their_descriptions(run: Run) -> None:
    lines = run("sql", "--views").stdout.splitlines()
    assert len(lines) > 60
    assert lines[0].startswith("Start with answers")
    (best,) = [line for line in lines if line.split()[:2] == ["view", "best"]]
    assert "certified" in lines[lines.index(best) + 1].split(", ")
    assert best.startswith("view")
    assert "best certified speedup of each problem" in best
    listed = json.loads(run("sql", "--views", "--json").stdout)
    assert {"name", "kind", "comment", "columns"} == set(listed[0])
    columns = {row["name"]: row["columns"] for row in listed}
    assert columns["rewards"] == ["stage", "step", "completion_id", "raw", "smoothed"]
    assert "authors" in columns["best"]
    assert "lineage('ID')" in [row["name"] for row in listed]


@pytest.fixture(scope="module")
def rewarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a ledger of 300 rewards."""
    folder = tmp_path_factory.mktemp("rewarded") / "data"
    with Ledger.open(folder) as ledger:
        ledger.begin("rl")
        ledger.add_rewards(1, [(f"c{i:03}", float(i), 0.5) for i in range(300)])
        ledger.export()
    return folder


@pytest.fixture
def filled(rewarded: Path, tmp_path: Path) -> Path:
    shutil.copytree(rewarded, tmp_path / "data")
    return tmp_path


def test_the_first_200_rows_are_printed(run: Run, filled: Path) -> None:
    done = run("sql", "from rewards order by completion_id")
    assert "c199" in done.stdout
    assert "c200" not in done.stdout
    assert done.stderr == "the first 200 rows; --out FILE.csv writes all\n"
    assert len(json.loads(run("sql", "--view", "rewards", "--json").stdout)) == 300
    assert (run("sql", "--view", "leaderboard").returncode, filled.exists()) == (0, True)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_export_has_all_rows_and_every_value(run: Run, filled: Path, suffix: str) -> None:
    done = run("sql", "from rewards order by completion_id", "--out", f"rewards.{suffix}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    path = filled / f"rewards.{suffix}"
    frame = pl.read_csv(path) if suffix == "csv" else pl.read_parquet(path)
    assert frame["completion_id"].to_list() == [f"c{i:03}" for i in range(300)]
    assert frame["raw"].to_list() == [float(i) for i in range(300)]
    assert not list(filled.glob(".*.partial"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of: a question, --view NAME, --views"),
        (["from best", "--view", "best"], "one of: a question, --view NAME, --views"),
        (["--view", "bets"], "no view or table 'bets'. Did you mean best? There are answers, "),
        (["--view", "lineage"], "SQL: "),
        (["--view", "best", "--out", "best.xlsx"], "wants a .csv or a .parquet file"),
        (["--view", "best", "--out", "best.csv", "--json"], "and no --json"),
        (["--view", "best", "--out", "no/where/best.csv"], "there is no folder no/where"),
        (["selec 1"], "SQL: "),
        (["select 1", "--out", "data"], "wants a .csv or a .parquet file"),
        (["select '\udcff'"], "not UTF-8 text"),
        (["select 1", "--out", "\udcff.csv"], "not UTF-8 text"),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_a_mistake_gives_one_line(run: Run, arguments: list[str], said: str) -> None:
    done = run("sql", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_a_question_beside_a_writer_is_answered_and_the_writer_continues(
    run: Run, filled: Path
) -> None:
    with Ledger.open(filled / "data") as writer:
        writer.begin("sft")
        writer.add_steps(1, {"loss": 2.0})
        done = run("sql", "--view", "training_steps", "--json")
        assert json.loads(done.stdout) == [
            {"stage": "sft", "step": 1, "name": "loss", "value": 2.0}
        ]
        assert "with what unfinished stages have found until now: sft" in done.stderr
        assert run("sql", "--view", "rewards", "--out", "rewards.csv").returncode == 0
        writer.add_steps(2, {"loss": 1.0})
        writer.export()
    assert len(json.loads(run("sql", "--view", "training_steps", "--json").stdout)) == 2


def test_a_question_before_any_run_gives_the_remedy(run: Run) -> None:
    done = run("sql", "from best")
    assert (done.returncode, done.stderr) == (2, "data: no ledger here; run `make run` first\n")
