"""Tests that docs/sql.md has every table, column and view, and that its commands and README's run.

Where DuckDB's own program is not installed, its questions are asked through its Python package.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.problem import Admission

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs" / "sql.md", ROOT / "README.md"]


def blocks(language: str, *documents: Path) -> list[str]:
    return [
        block
        for document in documents
        for block in re.findall(
            rf"```{language}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL
        )
    ]


QUESTIONS = blocks("sql", *DOCUMENTS)
COMMANDS = [line for block in blocks("sh", DOCUMENTS[0]) for line in block.splitlines()]
PROGRAMS = blocks("python", DOCUMENTS[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Make a folder with a ledger in `data`, with one stage exported."""
    from tests.ledger.conftest import Facts

    folder = tmp_path_factory.mktemp("project")
    with Ledger.open(folder / "data") as ledger:
        ledger.begin("filter")
        facts = Facts()
        facts.fill(ledger)
        compiled = facts.candidate("class ModelNew: compiled")
        ledger.add_baseline(compiled, Baseline.COMPILE)
        ledger.add_verdict(facts.correct(compiled, 1.2), [])
        reference = "class Model:\n    def forward(self, x): return x + 1\n"
        problem = facts.problem("plus").model_copy(update={"source": reference})
        ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        source = reference.replace("Model", "ModelNew").replace("x + 1", "x.add_(1)")
        winner = Candidate(problem_id=problem.id, source=source)
        answer = facts.completion("plus").model_copy(update={"problem_id": problem.id})
        ledger.add_completion(answer, winner, None)
        ledger.add_verdict(facts.correct(winner, 1.3), [])
        ledger.export()
    return folder


@pytest.fixture
def ledger(folder):
    with Ledger.read(folder / "data") as ledger:
        yield ledger


def test_every_block_of_the_document_is_of_a_known_kind():
    fences = re.findall(r"^```.*$", DOCUMENTS[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fences[::2]) == {"```sql", "```sh", "```python"}
    assert set(fences[1::2]) == {"```"}
    assert len(QUESTIONS) >= 15
    assert len(PROGRAMS) >= 2
    assert sum(line.startswith("duckdb ") for line in COMMANDS) >= 3


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_questions_of_the_document_are_answered(ledger, number):
    assert ledger.sql(QUESTIONS[number]).height > 0


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_document_run(folder, line):
    words = shlex.split(line)
    if words[0] == "duckdb" and shutil.which("duckdb") is None:
        with contextlib.chdir(folder):
            assert as_the_program_would(words[1:])
        return
    words = [sys.executable, "-m", "cudal1.cli", *words[1:]] if words[0] == "cudal1" else words
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "--out" in words:
        assert (folder / words[words.index("--out") + 1]).stat().st_size > 0
    else:
        assert done.stdout


def as_the_program_would(words: list[str]) -> list[tuple[object, ...]]:
    """Return the rows of `duckdb [-readonly] [-csv] [FILE] SQL`, or of `duckdb -c SQL`."""
    *others, query = words
    files = [word for word in others if not word.startswith("-")]
    with duckdb.connect(files[0] if files else ":memory:", read_only=bool(files)) as connection:
        assert ("-readonly" in others) == bool(files)
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_the_document_run(folder, program):
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(program, "docs/sql.md", "exec"), {})
    assert "shape: (" in printed.getvalue()
    assert "shape: (0" not in printed.getvalue()


@pytest.mark.slow
def test_the_example_notebook_runs(folder):
    """It is a program of cells: running it needs no kernel, and so no package of Jupyter's."""
    example = ROOT / "examples" / "ledger.py"
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(example.read_text(encoding="utf-8"), str(example), "exec"), {})
    assert "class ModelNew" in printed.getvalue()
    assert "shape: (0" not in printed.getvalue()
    assert "vega" in (folder / "data" / "success.html").read_text(encoding="utf-8")


def test_every_table_view_and_column_is_in_the_document(ledger):
    document = DOCUMENTS[0].read_text(encoding="utf-8")
    columns = ledger.sql("select table_name, column_name from duckdb_columns() where not internal")
    assert columns.height > 50
    tables = ledger.sql("select table_name from duckdb_tables()")["table_name"].to_list()
    for table, column in columns.iter_rows():
        assert f"`{table}`" in document, table
        if table in tables:
            section = document.split(f"### `{table}`", 1)[1].split("\n### ", 1)[0]
            assert f"`{column}`" in section, (table, column)


def test_every_table_view_macro_and_column_of_a_table_has_a_comment(ledger):
    bare = ledger.sql(
        "select table_name as name from duckdb_tables() where comment is null union all "
        "select view_name from duckdb_views() where comment is null and not internal union all "
        "select function_name from duckdb_functions() where comment is null and not internal "
        "union all select concat_ws('.', table_name, column_name) from duckdb_columns() "
        "semi join duckdb_tables() using (table_name) where comment is null"
    )
    assert bare["name"].to_list() == []
