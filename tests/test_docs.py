"""Every command that README, CONTRIBUTING and docs show exists: it is run here, or parsed.

Commands in a block are run in a project whose stages are up to date, by stand-ins; those that
cannot be are in `ONLY_PARSED` with the reason. Commands within a sentence are parsed.
docs/sql.md is run by tests/cli/test_sql.py; docs/LOG.md says what was true on its dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from dvc.cli.parser import DvcParserError

from tests.commands import parse, words_of
from tests.project import Project, copy_of_the_tree, git_commit, make_up_to_date

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
}
"""Programs whose commands are neither run nor parsed, and why."""

ONLY_PARSED = {
    r"make (run|test|check|install|dev|vllm)\b": "minutes, and an environment of its own",
    r"make (prefect|mlflow)\b": "a server, until it is stopped",
    r"prefect ": "needs the server; tests/flows runs one",
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


def shown() -> Iterator[tuple[str, str, bool]]:
    """Page, command, and whether it stands in a block."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.strip().startswith("#"):
                    yield page.name, line.strip(), True
        sentences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for code in re.findall(r"`([^`]+)`", sentences):
            command = " ".join(code.split())
            if re.match(rf"(CUDAL1_\w+=\S+ )?({'|'.join(OURS)}) \S", command):
                yield page.name, command, False


SHOWN = [(page, command, in_block) for page, command, in_block in shown()]
PARSED = dict.fromkeys(
    command for _, command, _ in SHOWN if words_of(command)[0] not in NOT_OURS
)  # fmt: skip


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
        if not any(re.match(what, command) for _, command, _ in SHOWN)
        and not what.startswith("prefect")  # docs/operating.md
    ]
    assert unused == []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """An engineer's checkout after a run, with a remote and the files that pages name."""
    folder = tmp_path_factory.mktemp("project")
    made = copy_of_the_tree(folder)
    make_up_to_date(made)
    git_commit(folder)
    (folder / "faster.py").write_text("class ModelNew: ...\n")
    return made


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_the_commands_of_a_page_run_one_after_the_other(project: Project, page: str) -> None:
    remote = project.folder / "remote"
    commands = [command for name, command, in_block in SHOWN if in_block and name == page]
    for command in commands:
        if words_of(command)[0] in NOT_OURS or why_not_run(command) is not None:
            continue
        words = [word.replace("/srv/cudal1", str(remote)) for word in words_of(command)]
        module = {"cudal1": "cudal1.cli"}.get(words[0], words[0])
        done = project.run(module, *words[1:])
        assert done.returncode == 0, f"{command}\n{done.stdout}"


@pytest.mark.parametrize(
    "wrong",
    ["dvc repr", "dvc exp run -Z", "make nothing", "python -m tasks.generate --dri", "cudal1 sqll"],
)
def test_a_command_that_does_not_exist_is_noticed(wrong: str) -> None:
    with pytest.raises((AssertionError, SystemExit, DvcParserError, typer.TyperException)):
        parse(wrong)
