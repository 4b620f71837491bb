"""The corpus of cheats and honest twins: one file each, with the expected verdict in its header.

A header is the file's docstring: one sentence, then lines of `name: value`.

* `id` — entry of the catalogue of hacks (A01 to A51); empty for an attack on this harness alone.
* `problem` — a problem of `conftest.py`.
* `expect` — the class of the verdict: a status, `gain` or `no_gain` of a correct one, or a group;
  several where chance decides between them.
* `precision` — the precision class of the judgement; strict if none is named (`honest_cuda` alone).
* `contract` — the contract of the judgement; KernelBench's if none is named.
* `needs` — a layer of the sandbox, a machine, a program or a package, without which the file must
  not even be tried.
* `open` — the reason why it is known to get through at times; only until that is repaired.
* `lawful` — an honest file that saves lawfully what the cheat saves, too: by buffers of its own.
  Where the honest file gains, the cheat may gain as much.
* `naive` — the way it fools a harness that trusts (`naive.py`): modes, and `gains` where being
  accepted is not enough, `wrong` where it is; or `no: ` and the reason why it is not tried there.
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
"""Classes that stand for several; every other class stands for itself."""


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
        """The classes of verdicts that it may end in."""
        expected = self._line("expect").split()
        return set[str]().union(*(GROUPS.get(each, {each}) for each in expected))

    @property
    def precision(self) -> PrecisionClass:
        """The precision class under which it is judged."""
        return PrecisionClass(self._line("precision") or "strict")

    @property
    def contract(self) -> Contract:
        """The contract under which it is judged."""
        return Contract(self._line("contract") or "kernelbench")

    @property
    def still_open(self) -> str:
        """The reason why it may get through; empty for all but the latest finds."""
        return self._line("open")

    @property
    def lawful(self) -> Case | None:
        """The honest file with the same lawful saving, if there is one."""
        name = self._line("lawful")
        return Case(FOLDER / "honest" / f"{name}.py") if name else None

    @property
    def naive_modes(self) -> set[str] | None:
        """The modes in which the naive harness tries it; None if it is not tried there."""
        said = self._line("naive")
        return None if said.startswith("no:") else set(said.split())

    @property
    def why_not_naive(self) -> str:
        return self._line("naive").removeprefix("no:").strip()

    def missing(self, layers: Sequence[str]) -> str | None:
        """Return what this machine lacks to try it, or None."""
        needed = self._line("needs")
        is_there = needed in ("", *layers, platform.machine()) or is_installed(needed)
        return None if is_there else needed

    def _line(self, name: str) -> str:
        header = self.source.split('"""')[1]
        found = re.search(rf"^{name}:(.*)$", header, re.MULTILINE)
        return found.group(1).strip() if found else ""


def is_installed(name: str) -> bool:
    """Return whether a program or a package of this name is installed."""
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def cases(folder: str) -> list[Case]:
    """Return all cases of a folder, ordered by name."""
    return [Case(path) for path in sorted((FOLDER / folder).glob("*.py"))]


EXPLOITS, HONEST = cases("exploits"), cases("honest")
CUDA_SIZES: dict[str, dict[str, int]] = {
    "silu": {"N": 4096},
    "softmax": {"N": 4096},
    "linear": {"N": 6144},
    "wasteful": {"N": 2048},
}
"""Sizes of problems for the files of `exploits_cuda` and `honest_cuda`, by problem; they are so
large that calls take longer than launches."""


LUCK = 1.1
"""Factor by which two verdicts on equally fast candidates may differ."""


def is_lawful(cheat: Verdict, honest: Verdict) -> bool:
    """Return whether a cheat's gain is no larger than that of the file with its lawful saving."""
    if cheat.status is not Status.CORRECT or honest.status is not Status.CORRECT:
        return False
    assert cheat.speedup is not None
    assert honest.speedup is not None
    return honest.speedup > 1.0 and cheat.speedup <= LUCK * honest.speedup


def class_of(verdict: Verdict) -> str:
    """Return the status, or for a correct candidate `gain` if its speedup is above 1, else
    `no_gain`."""
    if verdict.status is not Status.CORRECT:
        return str(verdict.status)
    assert verdict.speedup is not None
    return "gain" if verdict.speedup > 1.0 else "no_gain"
