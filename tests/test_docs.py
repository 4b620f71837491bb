"""Every command that README, CONTRIBUTING and docs show exists: it is run here, or parsed.

Commands in a block are run in a project whose stages are up to date, by stand-ins; those that
cannot be are in `ONLY_PARSED` with the reason. Commands within a sentence are parsed.
docs/sql.md is run by tests/cli/test_sql.py; docs/LOG.md says what was true on its dates.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from dvc.cli.parser import DvcParserError

from tests.commands import parse, words_of
from tests.project import (
    Project,
    copy_of_the_tree,
    git_commit,
    keep_runs_in_git,
    make_up_to_date,
)

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem not in ("LOG", "sql")),
]
OURS = ("cudal1", "dvc", "make", "prefect", "python")
"""Whose commands are parsed; `python` only with `-m`."""

NOT_OURS = {
    "source": "the shell's",
    "git": "takes any address",
    "pip": "installs",
    "apt-get": "installs",
    "ray": "starts a cluster; tests/harness/test_cluster.py does, too",
    "curl": "needs the server that the page is about",
    "duckdb": "a program of its own",
    "sqlite3": "a program of its own",
    "kill": "ends what the page started",
    "env": "starts vLLM's server, of another environment",
}
"""Programs whose commands are neither run nor parsed, and why."""

ONLY_PARSED = {
    r"make (run|test|check|install|dev|vllm)\b": "minutes, and an environment of its own",
    r"make (prefect|mlflow)\b": "a server, until it is stopped",
    r"(PREFECT_API_URL=\S+ )?prefect ": "needs the server; tests/flows runs one",
    r"dvc repro flows/night": "is a night; tests/flows has one",
    r"python -c": "changes what a server knows",
    r"python -m benchmarks\.": "minutes to hours",
    r"python -m pytest": "other tests, which run anyway",
    r"python -m tasks\.": "needs the problems of a real run; tests/test_sharing.py has one",
    r"CUDAL1_MAY_SPEND_USD=": "needs a key, and pays; tests/test_sharing.py asks nobody",
    r"cudal1 judge .*(--candidates|--suite|--cluster)": "needs a checkout of KernelBench; "
    "tests/cli/test_judge_many.py judges one of its form",
    r"cudal1 (judge|null-test|doctor)": "minutes; tests/cli and tests/harness run them",
    r"cudal1 report": "needs verdicts; tests/cli/test_judge_many.py reports some",
    r"cudal1 hacks (show|confirm|dismiss)": "needs a candidate of that id; "
    "tests/cli/test_hacks.py has others",
    r"cudal1 (sql|hacks list)": "needs a ledger; tests/cli and tests/test_sharing.py have one",
    r"dvc exp apply NAME": "the name is another each time",
    r"dvc repro -s transfer@nvidia": "needs that GPU",
}
"""Commands that are not run here, and why."""
OF_OPERATING = {
    what for what in ONLY_PARSED if "prefect " in what or "night" in what or "-c" in what
}
"""What only docs/operating.md may need."""


def blocks(page: Path) -> list[list[str]]:
    """The commands of each block that a shell would be given."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [block.replace("\\\n", " ").splitlines() for block in found]
    return [[line.strip() for line in block if line.split("#")[0].strip()] for block in lines]


def sentences(page: Path) -> list[str]:
    """The commands of ours within a page's text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    codes = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    ours = re.compile(rf"([A-Z][A-Z0-9_]+=\S+ )?({'|'.join(OURS)}) \S")
    return [code for code in codes if ours.match(code)]


BLOCKS = [(page.name, block) for page in PAGES for block in blocks(page)]
SHOWN = [command for _, block in BLOCKS for command in block]
SHOWN += [command for page in PAGES for command in sentences(page)]
PARSED = dict.fromkeys(each for each in SHOWN if words_of(each)[0] not in NOT_OURS)


def why_not_run(command: str) -> str | None:
    return next((why for what, why in ONLY_PARSED.items() if re.match(what, command)), None)


@pytest.mark.parametrize("command", PARSED)
def test_a_command_of_ours_exists(command: str) -> None:
    parse(command)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_file_and_page_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:cudal1|tasks|flows|tests|benchmarks|docs)/[\w./@-]*[\w/])`", text)
    real = {name for name in named if name == name.lower()}  # capitals stand for something
    assert sorted(name for name in real if not (ROOT / name).exists()) == []
    links = re.findall(r"\]\(([^)#:]+)(?:#([^)]*))?\)", text)
    pages = {link: page.parent / link for link, _ in links}
    assert [link for link, path in pages.items() if not path.exists()] == []
    for link, anchor in links:
        if anchor:
            titles = re.findall(r"^#+ (.+)$", pages[link].read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_every_exception_is_needed() -> None:
    unused = [
        what
        for what in ONLY_PARSED
        if not any(re.match(what, command) for command in SHOWN) and what not in OF_OPERATING
    ]
    assert unused == []


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """An engineer's checkout after a run that was committed and pushed."""
    made = copy_of_the_tree(tmp_path_factory.mktemp("project"))
    keep_runs_in_git(made)
    make_up_to_date(made)
    made.run("dvc", "remote", "add", "--default", "here", str(made.folder / "remote"))
    git_commit(made.folder)
    assert made.run("dvc", "push").returncode == 0
    return made


@pytest.fixture
def project(after_a_run: Project) -> Iterator[Project]:
    """The same, as it was committed whatever the last commands did."""
    yield after_a_run
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=after_a_run.folder, check=True)
    assert after_a_run.run("dvc", "checkout").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "block",
    [block for _, block in BLOCKS],
    ids=[f"{page} {block[0] if block else ''}" for page, block in BLOCKS],
)
def test_the_commands_of_a_block_run_one_after_the_other(
    project: Project, block: list[str]
) -> None:
    for command in block:
        if words_of(command)[0] in NOT_OURS or why_not_run(command) is not None:
            continue
        server = str(project.folder / "another-remote")
        words = [word.replace("/srv/cudal1", server) for word in words_of(command)]
        done = project.run({"cudal1": "cudal1.cli"}.get(words[0], words[0]), *words[1:])
        assert done.returncode == 0, f"{command}\n{done.stdout}"


@pytest.mark.parametrize(
    "wrong",
    ["dvc repr", "dvc exp run -Z", "make nothing", "python -m tasks.generate --dri", "cudal1 sqll"],
)
def test_a_command_that_does_not_exist_is_noticed(wrong: str) -> None:
    with pytest.raises((AssertionError, SystemExit, DvcParserError, typer.TyperException)):
        parse(wrong)
