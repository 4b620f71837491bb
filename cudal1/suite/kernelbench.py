"""KernelBench's problems, from a checkout, from its hub dataset or a local copy of that dataset.

None of its code ships here. KernelBench has no split of its own; `kernelbench_split` publishes one,
by names, and without it everything is training material. A broken file costs that problem only: it
is loaded as it is, and admission says why it is rejected. A wrong folder and a wrong sizes file are
errors.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1 import processes
from cudal1.errors import SuiteError
from cudal1.files.source_files import cut
from cudal1.files.text_file import naming_utf8
from cudal1.problem import DeviceClass, Problem, Split, Unreadable, resize
from cudal1.record import content_id
from cudal1.suite.halving import shrunk
from cudal1.suite.hub import from_home
from cudal1.suite.hub import rows as rows_of
from cudal1.suite.loader import level_of, number_and_name, read_source, short_name
from cudal1.suite.sizes import Sizes, load_sizes, refuse_unknown

DATASET = "ScalingIntelligence/KernelBench"
NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options that forbid git to start programs named in a checkout's own settings."""


def load(
    path: Path | None,
    *,
    revision: str | None,
    sizes: Path | None,
    device_class: DeviceClass,
    heldout: Collection[str] = (),
    largest_trained: int | None = None,
    named: str = "problems.path",
) -> list[Problem]:
    """Return all problems of a folder or, without one, of the hub dataset at `revision`.

    Args:
        path: a checkout, its `KernelBench` folder, or a local copy of the hub dataset (Parquet);
            `~` is the user's home.
        revision: revision of the hub dataset; None takes the newest, and names it by its content.
        sizes: a file like the shipped suite's `sizes.yaml`, with keys such as `level1/19_ReLU`.
        device_class: the section of the sizes file to take.
        heldout: names of held-out problems, such as `level1/19_ReLU`; those that the suite lacks
            are passed over, unless it has none of them.
        largest_trained: largest whole number at the top level of a training problem, unless the
            sizes file has another; larger ones are halved. Held-out problems keep their own.
        named: the option or key that gave the folder, for remedies.

    Raises:
        SuiteError: the folder is absent or holds no problems, the sizes file is malformed or names
            what is not there, the dataset cannot be had, or it has no held-out problem.
    """
    wanted = _Wanted(
        load_sizes(sizes) if sizes else Sizes(), device_class, frozenset(heldout), largest_trained
    )
    remedy = f"give {named} a checkout of KernelBench"
    path = path and from_home(path)
    if path is None:
        rows = _rows(DATASET, revision, f"check the network and problems.revision, or {remedy}")
        problems, names = _from_rows(rows, wanted, revision, where=DATASET)
    elif not path.is_dir():
        raise SuiteError(f"{path}: no such folder; {remedy}")
    elif files := _files(path):
        problems, names = _from_files(files, wanted)
    elif any(path.glob("**/*.parquet")):
        rows = _rows(str(path), None, f"{remedy}, or a whole copy of its dataset")
        problems, names = _from_rows(rows, wanted, None, where=str(path))
    else:
        raise SuiteError(f"{path}: no level1/1_name.py in it; is it a checkout of KernelBench?")
    if sizes:
        refuse_unknown(wanted.sizes, names, where=sizes)
    if heldout and wanted.heldout.isdisjoint(names):
        raise SuiteError(
            f"{path or DATASET}: has no problem that is to be held out, such as "
            f"{min(wanted.heldout)}; set problems.split to none, or {remedy}"
        )
    return _told_apart(problems)


@dataclass(frozen=True)
class _Wanted:
    """Sizes and sides that problems are loaded with."""

    sizes: Sizes
    device_class: DeviceClass
    heldout: frozenset[str]
    largest_trained: int | None

    def split(self, name: str) -> Split:
        return Split.HELDOUT if name in self.heldout else Split.TRAIN

    def sized(self, source: str, name: str, *, where: str) -> str:
        """Return a problem's source in the wanted sizes."""
        given = self.sizes.of(self.device_class, name)
        if self.largest_trained is not None and self.split(name) is Split.TRAIN:
            given = {**shrunk(source, self.largest_trained), **given}
        return _sized(source, given, where=where)


def _told_apart(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems; those that share a level and number are flawed."""
    places = Counter((problem.level, problem.number) for problem in problems)
    return [
        problem
        if places[problem.level, problem.number] == 1
        else Unreadable(
            **{name: getattr(problem, name) for name in Problem.model_fields},
            flaw=f"another problem of level {problem.level} has number {problem.number}, too",
        )
        for problem in problems
    ]


def _files(path: Path) -> list[Path]:
    """Return problems of a checkout or its `KernelBench` folder, files or folders, by place."""
    root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
    return sorted(
        (
            found
            for found in root.glob("level[0-9]/[0-9]*_*")
            if found.suffix == ".py" or any(found.glob("*.py"))
        ),
        key=lambda file: (level_of(file), number_and_name(file.stem)),
    )


def _from_files(files: Sequence[Path], wanted: _Wanted) -> tuple[list[Problem], list[str]]:
    names = [short_name(file) for file in files]
    found = [
        _from_file(file, wanted.device_class, wanted.split(name))
        for file, name in zip(files, names, strict=True)
    ]
    revision = _commit(files) or content_id(*(problem.source for problem in found))
    return [
        problem.model_copy(
            update={
                "revision": revision,
                "source": wanted.sized(problem.source, name, where=str(file)),
            }
        )
        for problem, name, file in zip(found, names, files, strict=True)
    ], names


def _from_file(file: Path, device_class: DeviceClass, split: Split) -> Problem:
    """Return the problem in a file, without a revision."""
    number, name = number_and_name(file.stem)
    place: dict[str, Any] = {
        "suite": "kernelbench",
        "level": level_of(file),
        "number": number,
        "name": name,
        "split": split,
        "device_class": device_class,
        "revision": "",
    }
    try:
        return Problem(**place, source=read_source(file))
    except SuiteError as error:
        flaw = str(error).removeprefix(f"{file}: ")
        return Unreadable(**place, source=f"# {short_name(file)}: {flaw}\n", flaw=flaw)


def _commit(files: Sequence[Path]) -> str | None:
    """Return the commit that the files are at; None without a repository or with changes."""
    root = files[0].parent.parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *NO_PROGRAMS, "-C", str(root), *arguments],
                env=processes.sparse(),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:  # no git here
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # a copy inside another repository is not at that repository's commit
    if git("ls-files", "--error-unmatch", "--", *(str(f.relative_to(root)) for f in files)) is None:
        return None
    if git("status", "--porcelain", "--", ".") != "":
        return None
    return git("rev-parse", "HEAD")


def _rows(dataset: str, revision: str | None, remedy: str) -> list[dict[str, Any]]:
    columns = ("level", "problem_id", "name", "code")
    return rows_of(dataset, revision, columns=columns, owner="KernelBench", remedy=remedy)


def _from_rows(
    rows: Sequence[Mapping[str, Any]], wanted: _Wanted, revision: str | None, *, where: str
) -> tuple[list[Problem], list[str]]:
    """Return the problems of the dataset's rows, and their names in a sizes file."""
    revision = revision or content_id(*(str(row["code"]) for row in rows))
    problems: list[Problem] = []
    names: list[str] = []
    placed = [
        (_number(row, "level", where=where), _number(row, "problem_id", where=where), row)
        for row in rows
    ]
    for level, number, row in sorted(placed, key=lambda each: each[:2]):
        stem = re.sub(r"^\d+_", "", str(row["name"]).removesuffix(".py"))
        names.append(f"level{level}/{number}_{stem}")
        problems.append(
            Problem(
                suite="kernelbench",
                level=level,
                number=number,
                name=number_and_name(f"{number}_{stem}")[1],
                split=wanted.split(names[-1]),
                device_class=wanted.device_class,
                revision=revision,
                source=wanted.sized(naming_utf8(str(row["code"])), names[-1], where=names[-1]),
            )
        )
    return problems, names


def _number(row: Mapping[str, Any], column: str, *, where: str) -> int:
    value = row[column]
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and int(value) == float(value):
            return int(value)
    raise SuiteError(
        f"{where}: the {column} of row {str(row['name'])[:80]!r} is {str(value)[:80]!r}, no whole "
        "number; is it KernelBench's dataset?"
    )


def _sized(source: str, constants: Mapping[str, object], *, where: str) -> str:
    """Return the source with top-level constants replaced, as `resize` does.

    A quarter of KernelBench's problems name some constants as `height = width = 128` or `D, H = 24,
    32`. A statement that holds one to be replaced is first split into assignments of one name each.
    A source that is no Python has no constants, and stays unchanged.

    Raises:
        SuiteError: a name is not a top-level constant of the file.
    """
    main, others = cut(source)
    try:
        nodes = ast.parse(main).body if constants else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        nodes = []
    if not nodes:
        return source
    lines = main.encode().split(b"\n")  # ast counts columns in UTF-8 bytes
    for node in reversed(nodes):
        values = _values(node)
        if values.keys().isdisjoint(constants):
            continue
        assert node.end_lineno is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        single = "; ".join(f"{name} = {ast.unparse(value)}" for name, value in values.items())
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [head + single.encode() + tail]
    return resize(b"\n".join(lines).decode() + others, constants, where=where)


def _values(node: ast.stmt) -> dict[str, ast.expr]:
    """Return names and values of a statement that assigns to several names; else nothing."""
    match node:
        case ast.Assign(targets=[_, _, *_] as targets, value=value):
            values = [value] * len(targets)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pass
        case _:
            return {}
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    is_plain = len(names) == len(targets) == len(values)
    return dict(zip(names, values, strict=True)) if is_plain else {}
