"""Split KernelBench into problems to train on and problems to hold out, near-duplicates together.

A held-out problem says little if the same operator in another size or dimension is trained on. So
families are held out whole. A family's problems compute the same operations by name, dimensions and
order aside (levels 1 and 2), or share a word of their architecture's name (level 3 and above).

The published list is `kernelbench_heldout.yaml`, names alone. It was drawn by

    python -m cudal1.suite.kernelbench_split CHECKOUT
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.files.text_file import read_yaml
from cudal1.suite.loader import read_source, short_name

PUBLISHED = Path(__file__).parent / "kernelbench_heldout.yaml"
NUM_HELDOUT = {1: 20, 2: 20, 3: 10}
"""Number of held-out problems by level; 200 of 250 are left."""
SEED = 1
MAX_SHARE = 4
"""A family has at most one of so many of a level's held-out problems, or 4 if that is more: the
marks are of several operators."""
FORMULAS = {"MinGPTNewGelu": "gelu"}
"""Problems that spell an operator out, by name; their operations do not tell."""
ONE_OPERATION = {
    **dict.fromkeys(("bmm", "mm", "einsum", "linear", "matmul", "triu", "tril"), "matmul"),
    **dict.fromkeys(("max", "min", "amax", "amin"), "extreme"),
    **dict.fromkeys(("argmax", "argmin"), "arg-extreme"),
    **dict.fromkeys(("cumsum", "cumprod"), "scan"),
    **dict.fromkeys(("sum", "mean", "adaptiveavgpool"), "mean"),
    **dict.fromkeys(("norm", "normalize"), "norm"),
    **dict.fromkeys(("relu", "leakyrelu", "relu6"), "relu"),
}
"""Operations that are one operator in another form, by their names in small letters."""
LAYOUT = frozenset(
    "view reshape unsqueeze squeeze flatten contiguous clone detach size shape flip narrow select "
    "cat zeros_like tensor t permute transpose super parameter randn ones zeros".split()
)
"""Names that compute nothing, in small letters."""
GENERAL = frozenset(
    "Net Block Module Layer Attention Transformer Self With Vanilla Return Hidden Bidirectional "
    "Deep Narrow Shallow Wide Unit Clusters No State Final Y V B".split()
)
"""Words of architectures' names that several unlike ones share."""


def heldout() -> frozenset[str]:
    """Return the names of the published held-out problems, such as `level1/19_ReLU`."""
    content = read_yaml(PUBLISHED, raising=SuiteError)
    assert isinstance(content, dict)
    return frozenset(content["heldout"])


def families(sources: Mapping[str, str]) -> list[list[str]]:
    """Return names in families, in the order of their first members.

    Args:
        sources: the reference of each problem by its name, such as `level1/19_ReLU`.
    """
    places: dict[tuple[object, ...], int] = {}
    groups: list[list[str]] = []
    for name, source in sources.items():
        keys = _keys(name, source)
        met = sorted({places[key] for key in keys if key in places})
        home = met[0] if met else len(groups)
        if not met:
            groups.append([])
        groups[home].append(name)
        for other in met[1:]:
            groups[home] += groups[other]
            groups[other] = []
            places = {key: home if at == other else at for key, at in places.items()}
        places.update(dict.fromkeys(keys, home))
    return [group for group in groups if group]


def choose(sources: Mapping[str, str], *, seed: int, counts: Mapping[int, int]) -> list[str]:
    """Return the names to hold out: whole families, drawn until a level has its count.

    A family that is larger than what its level still lacks, or than its share, is passed over.
    """
    chosen: list[str] = []
    by_level: defaultdict[int, list[list[str]]] = defaultdict(list)
    for group in families(sources):
        by_level[_level(group[0])].append(group)
    for level, count in counts.items():
        lacks = count
        for group in random.Random(f"{seed}:{level}").sample(by_level[level], len(by_level[level])):
            if len(group) <= min(lacks, max(4, count // MAX_SHARE)):
                chosen += group
                lacks -= len(group)
    return sorted(chosen, key=lambda name: (_level(name), int(name.split("/")[1].split("_")[0])))


def _level(name: str) -> int:
    return int(name.split("/")[0].removeprefix("level"))


def _keys(name: str, source: str) -> set[tuple[object, ...]]:
    """Return what a problem shares with its near-duplicates."""
    level = _level(name)
    title = name.partition("_")[2]
    if level <= 2:
        named = FORMULAS.get(title)
        return {(level, *([named] if named else sorted(_operations(source))))}
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", title)
    telling = [word.replace("Mini", "Min") for word in words if word not in GENERAL]
    return {(level, word) for word in telling or words}


def _operations(source: str) -> set[str]:
    """Return the operators that a module computes, without dimensions."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {source}
    model = [n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    found: set[str] = set()
    for node in (each for part in model for each in ast.walk(part)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
                continue  # the layer's class is in the constructor
            case ast.Call(func=ast.Attribute(attr="__init__")):
                continue
            case ast.Call(func=ast.Attribute(attr=name)):
                found.add(re.sub(r"\dd$", "", name).lower().removesuffix("_"))
            case ast.BinOp(op=ast.MatMult()):
                found.add("matmul")
            case _:
                pass
    named = {ONE_OPERATION.get(name, name) for name in found - LAYOUT}
    return named or {"pointwise"}


def main() -> None:
    """Write the published list from a checkout."""
    parser = argparse.ArgumentParser(description="Draw KernelBench's held-out problems.")
    parser.add_argument("checkout", type=Path)
    given = parser.parse_args()
    root = given.checkout / "KernelBench"
    files = [file for level in NUM_HELDOUT for file in root.glob(f"level{level}/[0-9]*.py")]
    files.sort(key=lambda file: (file.parent.name, int(file.stem.split("_")[0])))
    sources = {short_name(file): read_source(file) for file in files}
    names = choose(sources, seed=SEED, counts=NUM_HELDOUT)
    lines = [
        "# KernelBench's problems that are never trained on: whole families of near-duplicates,",
        "# drawn by cudal1/suite/kernelbench_split.py. All other problems are for training.",
        "heldout:",
        *(f"  - {name}" for name in names),
    ]
    PUBLISHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
