"""Tests that every command that README, CONTRIBUTING and docs show exists, and that links work.

Commands in a block are run, by stand-ins, in a project with up-to-date stages. Commands that
cannot be run are in `ONLY_PARSED` with the reason. Commands within a sentence are parsed.
tests/ledger/test_document.py runs docs/sql.md. Pages of docs/log/ say what was true on their dates.
References from code to a page are checked against the page.
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
from tests.project import Project, copy_of_the_tree, git_commit, keep_runs_in_git, make_up_to_date

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ALL_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
DATED = (DOCS / "log", DOCS / "shipped-run")
"""Folders of pages that describe an earlier state."""
PAGES = [
    page for page in ALL_PAGES if page != DOCS / "sql.md" and not set(DATED) & set(page.parents)
]
"""Pages that give their commands to these tests, to be run or parsed."""
MADE_LATER = {"docs/release.md"}
"""Pages that a program makes once it has a result: python -m benchmarks.release.page."""
OURS = ("cudal1", "dvc", "make", "prefect", "python")
"""Our programs, with parsed commands; `python` only with `-m`."""

NOT_OURS = {
    "source": "the shell's",
    "git": "takes any address",
    "pip": "installs",
    "apt-get": "installs",
    "ray": "starts a cluster; tests/harness/cluster/test_cluster.py does, too",
    "curl": "needs the server that the page is about",
    "duckdb": "a program of its own",
    "sqlite3": "a program of its own",
    "kill": "ends what the page started",
    "env": "starts vLLM's server, of another environment",
}
"""Programs that are neither run nor parsed, each with the reason."""

ONLY_PARSED = {
    r"make (run|test|check|install|dev|docs|smollm2|vllm)\b": "minutes, an environment of its own",
    r"make (prefect|mlflow)\b": "a server, until it is stopped",
    r"(PREFECT_API_URL=\S+ )?prefect ": "needs the server; tests/flows runs one",
    r"dvc repro flows/night": "is a night; tests/flows has one",
    r"python -c": "changes what a server knows",
    r"python -m benchmarks\.": "minutes to hours",
    r"python -m pytest": "other tests, which run anyway",
    r"python -m tasks\.": "needs the problems of a real run; tests/test_sharing.py has one",
    r"CUDAL1_MAY_SPEND_USD=": "needs a key, and pays; tests/test_sharing.py asks nobody",
    r"cudal1 judge .*(--candidates|--suite|--cluster)": "needs a checkout of KernelBench; "
    "tests/cli/judging/test_many.py judges one of its form",
    r"cudal1 (judge|null-test|doctor)": "minutes; tests/cli and tests/harness run them",
    r"cudal1 check": "needs kept versions; tests/cli/test_check.py has some",
    r"cudal1 optimize": "minutes; tests/cli/test_optimize.py runs it",
    r"cudal1 report": "needs verdicts; tests/cli/judging/test_many.py reports some",
    r"cudal1 hacks (show|confirm|dismiss)": "needs a candidate of that id; "
    "tests/cli/test_hacks.py has others",
    r"cudal1 (publish|sql --data)": "needs a bucket; tests/ledger/published has one",
    r"cudal1 show": "needs a ledger with that candidate; tests/cli/test_show.py has one",
    r"cudal1 (sql|hacks list)": "needs a ledger; tests/cli and tests/test_sharing.py have one",
    r"cudal1 serve --device": "a server, until it is stopped; tests/serving runs some",
    r"dvc exp apply NAME": "the name is another each time",
    r"dvc repro -s transfer@nvidia": "needs that GPU",
}
"""Patterns of commands that are not run here, each with the reason."""
OF_OPERATING = {
    what for what in ONLY_PARSED if "prefect " in what or "night" in what or "-c" in what
}
"""Patterns that only docs/operating.md may need."""


def blocks(page: Path) -> list[list[str]]:
    """Return the commands of each block that a shell would be given."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [block.replace("\\\n", " ").splitlines() for block in found]
    return [[line.strip() for line in block if line.split("#")[0].strip()] for block in lines]


def without_blocks(page: Path) -> str:
    """Return a page's text without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def sentences(page: Path) -> list[str]:
    """Return our commands within a page's text."""
    codes = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(page))]
    ours = re.compile(rf"([A-Z][A-Z0-9_]+=\S+ )?({'|'.join(OURS)}) \S")
    return [code for code in codes if ours.match(code)]


BLOCKS = [(page.name, block) for page in PAGES for block in blocks(page)]
SHOWN = [command for _, block in BLOCKS for command in block]
SHOWN += [command for page in PAGES for command in sentences(page)]
PARSED = dict.fromkeys(each for each in SHOWN if words_of(each)[0] not in NOT_OURS)


def why_not_run(command: str) -> str | None:
    return next((why for what, why in ONLY_PARSED.items() if re.match(what, command)), None)


@pytest.mark.parametrize("command", PARSED)
def test_each_of_our_commands_exists(command: str) -> None:
    parse(command)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_named_file_and_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:cudal1|tasks|flows|tests|benchmarks|docs)/[\w./@-]*[\w/])`", text)
    real = {name for name in named if name == name.lower()}  # capitals are placeholders
    assert sorted(name for name in real if not (ROOT / name).exists()) == []


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as GitHub and MkDocs make them, and of its marks."""
    text = without_blocks(page)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
    broken: list[str] = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (anchor and anchor not in anchors(aim)):
            broken.append(link)
        if DOCS in page.parents and DOCS not in aim.parents:
            broken.append(f"{link}: the site has no such page")
    assert broken == []


def test_every_page_of_the_log_is_in_its_index() -> None:
    pages = {path.name for path in (DOCS / "log").glob("*.md")} - {"index.md"}
    shown = re.findall(r"^\| (\S+) \| \[.+?\]\((\S+?\.md)\)", index_of_the_log(), re.MULTILINE)
    assert [name for _, name in shown if name not in pages] == []
    assert {name for _, name in shown} == pages
    assert [date for date, name in shown if not name.startswith(date)] == []


def index_of_the_log() -> str:
    return (DOCS / "log" / "index.md").read_text(encoding="utf-8")


def test_every_page_of_the_log_has_question_setup_number_and_decision() -> None:
    rows = ["question", "set-up", "number", "decision"]
    for page in (DOCS / "log").glob("2*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^\| (\S+) \| \S", text, re.MULTILINE)[:4] == rows, page.name


def code() -> dict[str, str]:
    """Return the text of each of our files that may mention a page, by its path."""
    done = subprocess.run(
        ["git", "ls-files", "*.py", "*.yaml", "*.txt", "*.toml", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in done.stdout.split() if not name.startswith("docs/")]
    existing = [name for name in names if (ROOT / name).exists()]
    return {name: (ROOT / name).read_text(encoding="utf-8", errors="replace") for name in existing}


def test_every_page_that_code_names_exists() -> None:
    broken: list[str] = []
    for name, text in code().items():
        for page, anchor in re.findall(r"\b(docs/[\w./-]+\.md)(?:#([\w-]+))?", text):
            if page in MADE_LATER:
                continue
            if not (ROOT / page).exists() or (anchor and anchor not in anchors(ROOT / page)):
                broken.append(f"{name}: {page}{anchor and f'#{anchor}'}")
    assert broken == []


def test_code_names_no_section_of_an_absent_file() -> None:
    numbered = re.compile(r"(?<![\w/.-])(\w[\w-]*\.md) (?:§ ?)?(?:\d|A\d)")
    broken = [f"{name}: {page}" for name, text in code().items() for page in numbered.findall(text)]
    assert broken == []


def test_every_attack_of_the_corpus_is_in_the_catalogue() -> None:
    text = (DOCS / "attacks.md").read_text(encoding="utf-8")
    marks = anchors(DOCS / "attacks.md")
    for folder in ("exploits", "exploits_cuda"):
        for case in sorted((ROOT / "tests" / "harness" / folder).glob("*.py")):
            header = re.search(r"^id:[ ]*(\S*)$", case.read_text(encoding="utf-8"), re.MULTILINE)
            assert header is not None, case.name
            assert f"`{case.stem}`" in text, case.name
            assert not header[1] or header[1].lower() in marks, header[1]


def test_readme_shows_the_example_unchanged() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    files = [ROOT / "examples" / "layer_norm" / name for name in ("model.py", "faster.py")]
    assert shown == [file.read_text(encoding="utf-8") for file in files]
    assert [file.name for file in files if len(file.read_text().splitlines()) > 20] == []


def test_readme_is_short_and_reaches_a_verdict_soon() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, heading, _ = text.partition("## A verdict on your own module")
    assert heading
    assert len(before.split()) <= 250
    assert len(text.splitlines()) <= 150


def test_every_exception_is_needed() -> None:
    unused = [
        what
        for what in ONLY_PARSED
        if not any(re.match(what, command) for command in SHOWN) and what not in OF_OPERATING
    ]
    assert unused == []


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make an engineer's checkout after a run that was committed and pushed."""
    made = copy_of_the_tree(tmp_path_factory.mktemp("project"))
    keep_runs_in_git(made)
    make_up_to_date(made)
    made.run("dvc", "remote", "add", "--default", "here", str(made.folder / "remote"))
    git_commit(made.folder)
    assert made.run("dvc", "push").returncode == 0
    return made


@pytest.fixture
def project(after_a_run: Project) -> Iterator[Project]:
    """Lend that checkout, and restore its committed state after the test."""
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
