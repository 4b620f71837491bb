"""The stages that dvc.yaml defines, in an order in which they can run."""

from __future__ import annotations

from pathlib import Path

import networkx

from cudal1.errors import ConfigError


def stage_names(*, until: str, root: Path = Path()) -> list[str]:
    """Every stage that `until` needs, itself last; a group's name stands for all its instances.

    Raises:
        ConfigError: dvc.yaml or params.yaml is wrong, or has no stage of that name.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo:
            graph = repo.index.graph
    except DvcException as error:
        raise ConfigError(f"dvc.yaml: {' '.join(str(error).split())}") from error
    ordered = list(networkx.lexicographical_topological_sort(
        graph.reverse(copy=True), key=lambda stage: _position(stage.addressing)
    ))  # fmt: skip
    names = [stage.addressing for stage in ordered]
    wanted = {s for s in ordered if s.addressing == until or s.addressing.split("@")[0] == until}
    if not wanted:
        raise ConfigError(f"no stage named {until}; there are {', '.join(names)}")
    needed = wanted | {d for s in wanted for d in networkx.descendants(graph, s)}
    return [stage.addressing for stage in ordered if stage in needed]


_ORDER = ("problems", "policy", "generate", "filter", "sft", "selfsup", "rl", "transfer", "report")


def _position(name: str) -> tuple[int, str]:
    """The order of the paper, among stages that could run in any order."""
    group = name.split("@")[0]
    return (_ORDER.index(group) if group in _ORDER else len(_ORDER), name)
