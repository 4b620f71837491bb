"""The corpus: cheats and honest twins, one file each, whose header says what must become of it.

A header is the file's docstring: one sentence, then lines of `name: value`.

* `id` — entry of the catalogue of hacks (A01 to A51); empty for an attack on this harness alone.
* `problem` — a problem of `conftest.py`.
* `expect` — the class of the verdict: a status, `gain` or `no_gain` of a correct one, or a group;
  several where chance decides between them.
* `precision` — the class that is asked for; strict if none is named (`honest_cuda` alone).
* `contract` — what it owes; KernelBench's if none is named.
* `needs` — a layer of the sandbox, a machine, a program or a package, without which it must not
  even be tried.
* `open` — why it is known to get through now and then; only until that is repaired.
* `naive` — how it fools a harness that trusts (`naive.py`): modes, and `gains` where being accepted
  is not enough, `wrong` where it is; or `no: ` and why it is not tried there.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudal1.protocol import Contract, PrecisionClass
from cudal1.verdict import Status, Verdict

FOLDER = Path(__file__).parent
GROUPS: dict[str, set[str]] = {
    "wrong": {"incorrect", "hacked"},
    "correct": {"gain", "no_gain"},
    "stopped": {"no_gain", *Status} - {"correct"},
}
"""Classes that stand for several; every other one stands for itself."""


@dataclass(frozen=True)
class Case:
    """One file of the corpus."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text()

    @property
    def id(self) -> str:
        return self._line("id")

    @property
    def problem(self) -> str:
        return self._line("problem")

    @property
    def accepted(self) -> set[str]:
        """Classes of verdicts that it may end in."""
        expected = self._line("expect").split()
        return set[str]().union(*(GROUPS.get(each, {each}) for each in expected))

    @property
    def precision(self) -> PrecisionClass:
        """The precision class under which it is judged."""
        return PrecisionClass(self._line("precision") or "strict")

    @property
    def contract(self) -> Contract:
        """What it owes."""
        return Contract(self._line("contract") or "kernelbench")

    @property
    def still_open(self) -> str:
        """Why it may get through; empty for all but the latest finds."""
        return self._line("open")

    @property
    def naive_modes(self) -> set[str] | None:
        """How it is tried in the naive harness; None when it is not."""
        said = self._line("naive")
        return None if said.startswith("no:") else set(said.split())

    @property
    def why_not_naive(self) -> str:
        return self._line("naive").removeprefix("no:").strip()

    def missing(self, layers: Sequence[str]) -> str | None:
        """What this machine lacks to try it."""
        needed = self._line("needs")
        is_there = needed in ("", *layers, platform.machine()) or is_installed(needed)
        return None if is_there else needed

    def _line(self, name: str) -> str:
        header = self.source.split('"""')[1]
        found = re.search(rf"^{name}:(.*)$", header, re.MULTILINE)
        return found.group(1).strip() if found else ""


def is_installed(name: str) -> bool:
    """Whether there is a program or a package of that name."""
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def cases(folder: str) -> list[Case]:
    """All of a folder, by name."""
    return [Case(path) for path in sorted((FOLDER / folder).glob("*.py"))]


EXPLOITS, HONEST = cases("exploits"), cases("honest")
CUDA_SIZES: dict[str, dict[str, int]] = {
    "silu": {"N": 4096},
    "softmax": {"N": 4096},
    "linear": {"N": 6144},
    "wasteful": {"N": 2048},
}
"""Sizes for the files of `exploits_cuda` and `honest_cuda`, where launches must not be all."""


def class_of(verdict: Verdict) -> str:
    """A status, or whether a correct candidate earned more than the reference."""
    if verdict.status is not Status.CORRECT:
        return str(verdict.status)
    assert verdict.speedup is not None
    return "gain" if verdict.speedup > 1.0 else "no_gain"
