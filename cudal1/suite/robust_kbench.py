"""Tasks of robust-kbench (Sakana AI, arXiv 2509.14279), from a checkout, as problems.

A task is a module in functional form, `func_forward.py`, and `config_forward.json` with arguments
by name. Its `Model.forward` calls `forward_fn` with the weights. The first configuration of each
kind becomes part of the problem's source. Candidates are modules, as for every suite; robust-kbench
asks for the function alone.

Levels 1 and 2 are KernelBench's problems in this form. Level 3 has robust-kbench's own tasks, and
level 4 their backward passes, which cannot be judged: cudal1 compares what a module returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from cudal1.errors import SuiteError
from cudal1.files.text_file import read_text
from cudal1.problem import DeviceClass, Problem, Split, Unreadable
from cudal1.record import content_id
from cudal1.suite.hub import from_home
from cudal1.suite.loader import number_and_name, read_source
from cudal1.suite.signatures import constructor, function, in_order, parsed, with_defaults

SUITE = "robust-kbench"
OWN_LEVEL, BACKWARD_LEVEL = 3, 4
BACKWARD = "is a backward pass; cudal1 judges what a module returns, so take the forward task"
_NAME = re.compile(r"level(\d+)/(\d+)_")
_PLACE = re.compile(r"level_(\d+)/task_(\d+)")


def load(
    path: Path, *, device_class: DeviceClass, named: str, heldout: Collection[str] = ()
) -> list[Problem]:
    """Return the tasks of a checkout; a broken one is flawed.

    Args:
        path: the checkout, or its folder `tasks`; `~` is the user's home.
        device_class: of the problems.
        heldout: KernelBench's names of held-out problems, such as `level1/19_ReLU`.
        named: the option or key that gave the folder, for remedies.

    Raises:
        SuiteError: the folder is absent or holds no tasks.
    """
    path = from_home(path)
    root = path / "tasks" if (path / "tasks").is_dir() else path
    forward = sorted(found.parent for found in root.glob("**/func_forward.py"))
    if not forward:
        raise SuiteError(
            f"{path}: no func_forward.py in it; give {named} a checkout of robust-kbench"
        )
    backward = sorted(found.parent for found in root.glob("**/func_backward.py"))
    problems = [
        *_numbered(forward, root, device_class),
        *(
            _unreadable(_place(BACKWARD_LEVEL, number, folder.name, device_class), BACKWARD)
            for number, folder in enumerate(backward, start=1)
        ),
    ]
    revision = content_id(*(problem.source for problem in problems))
    unseen = {tuple(map(int, found.groups())) for found in map(_NAME.match, heldout) if found}
    for i, problem in enumerate(problems):
        is_unseen = problem.level < OWN_LEVEL and (problem.level, problem.number) in unseen
        split = Split.HELDOUT if is_unseen else Split.TRAIN
        problems[i] = problem.model_copy(update={"revision": revision, "split": split})
    return sorted(problems, key=lambda problem: (problem.level, problem.number))


def _numbered(folders: Iterable[Path], root: Path, device_class: DeviceClass) -> list[Problem]:
    problems: list[Problem] = []
    num_own = 0
    for folder in folders:
        found = _PLACE.search(folder.relative_to(root).as_posix())
        if found is None:
            num_own += 1
            place = _place(OWN_LEVEL, num_own, folder.name, device_class)
        else:
            level, number = map(int, found.groups())
            place = _place(level, number, _kernelbench_name(folder, number), device_class)
        try:
            problems.append(Problem(**place, source=_source(folder)))
        except SuiteError as error:
            problems.append(_unreadable(place, str(error)))
    return problems


def _kernelbench_name(folder: Path, number: int) -> str:
    """Return the name of KernelBench's file beside a task; without one it is that of the folder."""
    stems = [found.stem for found in sorted(folder.glob(f"{number}_*.py"))]
    return number_and_name(stems[0])[1] if stems else folder.name


def _place(level: int, number: int, name: str, device_class: DeviceClass) -> dict[str, Any]:
    return {
        "suite": SUITE,
        "level": level,
        "number": number,
        "name": name,
        "split": Split.TRAIN,
        "revision": "",
        "device_class": device_class,
    }


def _unreadable(place: dict[str, Any], flaw: str) -> Unreadable:
    text = f"# {place['suite']}, level {place['level']}, {place['name']}: {flaw}\n"
    return Unreadable(**place, source=text, flaw=flaw)


def _source(folder: Path) -> str:
    """Return a task's module with the arguments of its first configuration.

    Raises:
        SuiteError: it cannot be read, or configuration and module do not fit together.
    """
    source = read_source(folder / "func_forward.py")
    tree = parsed(source)
    shared = _config(folder, "shared")
    made = function(tree.body, "get_inputs")
    if made is None:
        raise SuiteError("has no get_inputs")
    arguments = in_order(constructor(tree, "Model"), {**_config(folder, "init"), **shared})
    sized = with_defaults(source, made, {**_config(folder, "input"), **shared})
    return f"{sized.rstrip()}\n\n\ndef get_init_inputs():\n    return {arguments!r}\n"


def _config(folder: Path, kind: str) -> dict[str, object]:
    """Return the first configuration of a kind: `input`, `init` or `shared`.

    Raises:
        SuiteError: the file is absent, no JSON, or has none.
    """
    path = folder / "config_forward.json"
    key = f"single_{kind}_configs"
    try:
        match json.loads(read_text(path, raising=SuiteError)):
            case {**found} if isinstance(listed := found.get(key), list) and listed:
                if isinstance(listed[0], dict):
                    return listed[0]
    except ValueError as error:
        raise SuiteError(f"{path.name} is no JSON ({error})") from error
    raise SuiteError(f"{path.name} has no {key}")
