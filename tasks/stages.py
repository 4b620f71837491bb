"""Read dvc.yaml: the stages, their order, and the inputs of each."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx

from cudal1.errors import ConfigError
from cudal1.record import content_id
from tasks.server.checkout import refuse_places


def stage_names(*, until: str, root: Path = Path()) -> list[str]:
    """Return every stage that `until` needs, itself last; a group's name means all instances.

    Raises:
        ConfigError: dvc.yaml or params.yaml is wrong, or has no stage of that name.
    """
    with _repo(root) as repo:
        graph = repo.index.graph
    ordered = list(
        networkx.lexicographical_topological_sort(
            graph.reverse(copy=True), key=lambda stage: _position(stage.addressing)
        )
    )
    names = [stage.addressing for stage in ordered]
    wanted = {s for s in ordered if s.addressing == until or s.addressing.split("@")[0] == until}
    if not wanted:
        raise ConfigError(f"no stage named {until}; there are {', '.join(names)}")
    needed = wanted | {d for s in wanted for d in networkx.descendants(graph, s)}
    return [stage.addressing for stage in ordered if stage in needed]


def is_fresh(name: str, *, root: Path = Path()) -> bool:
    """Return whether DVC would find nothing to do; starting DVC itself would cost a second.

    Raises:
        ConfigError: dvc.yaml or params.yaml is wrong, no stage is so named, or its outputs cannot
            be where they are to be.
    """
    with _repo(root) as repo, repo.lock:
        stage = _stage(name, repo)
        refuse_places(stage, repo)
        return not stage.changed()


def descriptions(names: Iterable[str], *, root: Path = Path()) -> dict[str, str]:
    """Return what each stage does, as dvc.yaml says it.

    Raises:
        ConfigError: dvc.yaml or params.yaml is wrong.
    """
    with _repo(root) as repo:
        said = {stage.addressing: stage.desc or "" for stage in repo.index.stages}
    return {name: said.get(name) or name for name in names}


def run_key(name: str, *, root: Path = Path()) -> str:
    """Return an id of the stage instance's parameters and input data.

    A killed run is continued only when its id is the same. Code is left out on purpose: a run that
    a bug has stopped goes on once the bug is mended.

    Raises:
        ConfigError: dvc.yaml or params.yaml is wrong, an input is missing, no stage is so named, or
            its outputs cannot be where they are to be.
    """
    with _repo(root) as repo:
        parts: list[str] = [name]
        stage = _stage(name, repo)
        refuse_places(stage, repo)
        for dependency in stage.deps:
            path = dependency.def_path
            if hasattr(dependency, "read_params"):
                values = dependency.read_params()
                parts += [f"{key}={values.get(key)!r}" for key in sorted(dependency.params)]
            elif path.startswith("data/"):
                if not dependency.exists:
                    raise ConfigError(
                        f"{name}: {path} is missing; run `dvc repro {stage.addressing}`"
                    )
                parts.append(f"{path}={dependency.get_hash().value}")
    return content_id(*parts)


def _stage(name: str, repo: Any) -> Any:
    found = [stage for stage in repo.index.stages if name in (stage.addressing, stage.name)]
    if not found:
        raise ConfigError(f"no such stage: {_alternatives(name, repo)}")
    return found[0]


def _alternatives(name: str, repo: Any) -> str:
    """Return what could have been meant by an unknown instance."""
    group = name.split("@")[0]
    known = [stage.addressing.split("@") for stage in repo.index.stages]
    items = [parts[1] for parts in known if parts[0] == group and len(parts) > 1]
    if not items:
        return f"{group} has no instances, so leave --item out"
    return f"give --item, one of {', '.join(items)} (they are in params.yaml)"


@contextmanager
def _repo(root: Path) -> Generator[Any]:
    """Yield DVC's view of the repository, and translate its errors into our own."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo:
            yield repo
    except DvcException as error:
        raise ConfigError(f"dvc.yaml: {' '.join(str(error).split())}") from error


_ORDER = (
    "problems",
    "policy",
    "generate",
    "filter",
    "sft",
    "selfsup",
    "rl",
    "ablation",
    "search",
    "transfer",
    "report",
)


def _position(name: str) -> tuple[int, str]:
    """Return the place in the order of the paper, among stages that could run in any order."""
    group = name.split("@")[0]
    return (_ORDER.index(group) if group in _ORDER else len(_ORDER), name)
