"""Get cudal1's verdicts on released sources, in one run of `cudal1 judge`.

Verdicts and refused references are kept as the command finds them. `__main__` says which classes
are asked for, and why in this order.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.ablation.memory import Lines
from benchmarks.common import note
from benchmarks.release.command import WAIT_S, Files, cut_off, run
from benchmarks.release.rows import Entry, Place, Which
from benchmarks.release.state import State, lines_of
from cudal1 import processes
from cudal1.cli.verdicts.verdict_file import read_judged
from cudal1.problem import DeviceClass
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.settings import protocols
from cudal1.verdict import Verdict

NAME = "task"
"""A problem's name: the release has none."""
REFUSED = re.compile(rf"kernelbench/L(\d+)/(\d+)_{NAME}: cannot be judged: (.*)", re.DOTALL)
"""Pattern by which `cudal1 judge` names a problem that cannot be judged."""


@dataclass(frozen=True)
class Audit:
    """The subject and settings of judging, and the place of results."""

    state: State
    which: Which
    protocol: EvalProtocol
    device_class: DeviceClass

    @property
    def folder(self) -> Path:
        """Return the folder of its results."""
        return self.state.judging(self.which, self.protocol.mode, self.protocol.precision)

    @property
    def verdicts_file(self) -> Path:
        """Return the file of verdicts that `cudal1 judge` writes."""
        return self.folder / "verdicts.jsonl"

    @property
    def refused_file(self) -> Path:
        """Return the file with a line for each reference that was refused."""
        return self.folder / "refused.jsonl"

    def verdicts(self) -> dict[tuple[str, str], Verdict]:
        """Return the verdicts so far, by the ids of problem and candidate."""
        if not self.verdicts_file.exists():
            return {}
        verdicts = [judged.verdict for judged in read_judged(self.verdicts_file)]
        return {
            (verdict.problem_id, verdict.candidate_id): verdict
            for verdict in verdicts
            if verdict.protocol_id == self.protocol.id
        }

    def refused(self) -> dict[str, str]:
        """Return the reasons of references refused so far, by the problem's id."""
        return {line["problem_id"]: line["reason"] for line in self.lines(self.refused_file)}

    def successes(self, entries: Sequence[Entry]) -> dict[Place, bool]:
        """Return whether each settled entry is correct; one with a refused reference is not."""
        verdicts, refused = self.verdicts(), self.refused()
        found: dict[Place, bool] = {}
        for entry in entries:
            verdict = verdicts.get((entry.problem_id, entry.candidate_id))
            if verdict is not None or entry.problem_id in refused:
                found[entry.place] = verdict is not None and verdict.is_successful
        return found

    def left(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries with neither a verdict nor a refused reference."""
        verdicts, refused = self.verdicts(), self.refused()
        return [
            entry
            for entry in entries
            if entry.source
            and (entry.problem_id, entry.candidate_id) not in verdicts
            and entry.problem_id not in refused
        ]

    @property
    def said(self) -> str:
        """Return the question in words."""
        what = "" if self.protocol.timing else ", checks only"
        return f"{self.protocol.mode}, {self.protocol.precision}{what}"

    @property
    def runs_file(self) -> Path:
        """Return the file with a line for each run of the command."""
        return self.folder / "runs.jsonl"

    @property
    def warm_file(self) -> Path:
        """Return the file with a line for each run with warm caches, up to its first verdict."""
        return self.folder / "warm.jsonl"

    def lines(self, file: Path) -> list[dict[str, Any]]:
        """Return the lines of a file that are of this protocol."""
        return [line for line in lines_of(file) if line["protocol_id"] == self.protocol.id]


def protocol_of(
    name: str,
    *,
    contract: Contract,
    mode: Mode = Mode.CONSTRUCTED,
    precision: PrecisionClass = PrecisionClass.HALF,
) -> EvalProtocol:
    """Return a protocol under a contract, in a mode and a class; only the loosest class is timed.

    Raises:
        ConfigError: there is no such protocol.
    """
    changes = {"contract": contract, "mode": mode, "precision": precision}
    protocol = protocols.load(name).model_copy(update=changes)
    return protocol if precision is PrecisionClass.HALF else protocol.checks_only()


def judge(audit: Audit, entries: Sequence[Entry], *, deadline: float, keep_open: int) -> None:
    """Judge the entries that have neither a verdict nor a refused reference yet.

    Args:
        audit: what is judged, and how.
        entries: those without a source are left out.
        deadline: the command is interrupted then; what it has judged is kept.
        keep_open: a descriptor that the command inherits.

    Raises:
        ConfigError: the command says that it cannot judge.
    """
    files = Files(audit.folder, audit.verdicts_file)
    if (killed := cut_off(files)) is not None:
        Lines(audit.runs_file).add({**killed, "protocol_id": audit.protocol.id})
    left = audit.left(entries)
    if not left or time.monotonic() >= deadline:
        return
    audit.folder.mkdir(parents=True, exist_ok=True)
    note(f"judging {audit.which} ({audit.said}): {len(left)} candidates")
    is_cold = not _cache(audit).exists()
    command = _command(audit, left, files.verdicts)
    told = run(
        command, files, environment=_environment(audit), deadline=deadline, keep_open=keep_open
    )
    _keep_refused(audit, files.answer, left)
    Lines(audit.runs_file).add({**told, "is_cold": is_cold, "protocol_id": audit.protocol.id})
    num_settled = len(left) - len(audit.left(left))
    note(f"{num_settled} of {len(left)} settled in {told['wall_s']:.1f} s")


def time_first(audit: Audit, entries: Sequence[Entry], *, deadline: float, keep_open: int) -> None:
    """Note after how many seconds the first verdict comes when caches are warm.

    All entries are asked for once more, beside the kept verdicts, and the command is interrupted at
    its first verdict. Nothing is done where that is known, or before all entries have been judged.
    """
    is_known = bool(audit.lines(audit.warm_file))
    if is_known or audit.left(entries) or time.monotonic() >= deadline:
        return
    folder = audit.state.work / f"{audit.folder.name}-again"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = Files(folder, folder / "verdicts.jsonl")
    command = _command(audit, [entry for entry in entries if entry.source], files.verdicts)
    told = run(
        command,
        files,
        environment=_environment(audit),
        deadline=deadline,
        keep_open=keep_open,
        only_first=True,
    )
    Lines(audit.warm_file).add({**told, "protocol_id": audit.protocol.id})
    note(f"warm, the first verdict after {told['first_verdict_s']} s")


def _environment(audit: Audit) -> dict[str, str]:
    """Return an environment with caches of its own, which are empty when an audit begins."""
    return processes.sparse(XDG_CACHE_HOME=str(_cache(audit)))


def _cache(audit: Audit) -> Path:
    return audit.state.work / "cache"


def _command(audit: Audit, entries: Sequence[Entry], verdicts: Path) -> list[str]:
    """Write the files that the command reads, and return the command."""
    folder = audit.state.work / audit.folder.name
    for entry in entries:
        level, number = entry.place
        file = folder / "KernelBench" / f"level{level}" / f"{number}_{NAME}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(entry.reference, encoding="utf-8")
    rows = [
        {"level": entry.place[0], "problem_id": entry.place[1], "source": entry.source}
        for entry in entries
    ]
    candidates, protocol = folder / "candidates.jsonl", folder / "protocol.yaml"
    candidates.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    protocol.write_text(yaml.safe_dump(audit.protocol.model_dump(mode="json")), encoding="utf-8")
    options = {
        "--suite": f"kernelbench:{folder}",
        "--candidates": str(candidates),
        "--out": str(verdicts),
        "--protocol": str(protocol),
        "--device": audit.device_class.value,
        "--baselines": "none",
        "--wait": str(WAIT_S),
    }
    words = [word for option in options.items() for word in option]
    return processes.python("cudal1.cli", "judge", *words, "--json")


def _keep_refused(audit: Audit, answer: Path, entries: Sequence[Entry]) -> None:
    """Keep the references that the command named as refused."""
    try:
        complaints = json.loads(answer.read_text(encoding="utf-8"))["complaints"]
    except (ValueError, KeyError):  # the command was killed
        return
    refused = Lines(audit.refused_file)
    problem_ids = {entry.place: entry.problem_id for entry in entries}
    for match in filter(None, map(REFUSED.fullmatch, complaints)):
        problem_id = problem_ids[int(match[1]), int(match[2])]
        refused.add(
            {"problem_id": problem_id, "reason": match[3], "protocol_id": audit.protocol.id}
        )
