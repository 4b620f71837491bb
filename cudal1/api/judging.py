"""`cudal1.judge` and `cudal1.judge_many`: verdicts for a Python program.

The caller's process is no place for a judge: it may hold anything, and it has begun in whatever
folder and environment. So each call starts the command line, isolated, as `cudal1 judge` does, and
reads the JSON that it prints. Nothing of a candidate runs in the caller's process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cudal1 import processes
from cudal1.api.given import Given, candidate_or_path, problem_or_path
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, CudaL1Error, SuiteError
from cudal1.files.source_folder import read_folder
from cudal1.files.text_file import read_python
from cudal1.problem import PROBLEM_NAMES
from cudal1.protocol import EvalProtocol
from cudal1.record import content_id
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

NOTE = "note: "
"""Beginning of a line of the command that is worth knowing, and no complaint."""
GOOD, BAD = 0, 1
"""Exit codes of `cudal1 judge` with an answer (docs/command-line.md)."""
INTERRUPTED = 130
Protocol = str | os.PathLike[str] | EvalProtocol
"""A name of a protocol that ships, the path of a YAML file, or a protocol."""
Device = Literal["cpu", "cuda"]
Precision = Literal["strict", "tf32", "half"]
Contract = Literal["kernelbench", "drop_in"]
Mode = Literal["train", "eval"]


def judge(
    Model: Given,
    ModelNew: Given,
    get_inputs: Callable[[], Any] | None = None,
    get_init_inputs: Callable[[], Any] | None = None,
    *,
    device: Device | None = None,
    protocol: Protocol | None = None,
    precision: Precision | None = None,
    contract: Contract | None = None,
    mode: Mode | None = None,
    timing: bool = True,
    wait_s: float = 0.0,
) -> Verdict:
    """Judge a candidate for a problem: is it correct, and by how much is it certified faster?

    `Model` runs as trusted code, `ModelNew` in a sandbox; both run in other processes, from their
    source. A class's source is what it needs of the top level of its module's file.

    Args:
        Model: the problem: a class to make faster, a source text with `Model`, `get_inputs` and
            `get_init_inputs`, or the path of a file or folder with these.
        ModelNew: the candidate: a class, a source text with `ModelNew`, or a path.
        get_inputs: where `Model` is a class: draws the tensors of one call, returns their list.
        get_init_inputs: where `Model` is a class: returns the list of its arguments; None: none.
        device: None takes a GPU where there is one.
        protocol: None takes the device's.
        precision: what counts as correct; None: as the protocol says.
        contract: what a candidate owes; None: as the protocol says.
        mode: the mode that modules run in; None: as they are constructed.
        timing: whether a correct candidate is timed.
        wait_s: seconds to wait for a busy device.

    Returns:
        The verdict. `verdict.is_successful` says whether the candidate is correct,
        `verdict.speedup` its certified speedup, `verdict.reason` why it is not correct.

    Raises:
        CudaL1Error: no verdict could be given: the problem cannot be judged, an argument is wrong,
            the device is busy. The message is one line, with the remedy.
    """
    options = _Options(device, protocol, precision, contract, mode, timing, wait_s)
    problem = problem_or_path(Model, get_inputs, get_init_inputs)
    candidate = candidate_or_path(ModelNew)
    with tempfile.TemporaryDirectory(prefix="cudal1-") as place:
        folder = Path(place)
        words = [
            _as_argument(problem, folder / "problem.py"),
            _as_argument(candidate, folder / "candidate.py"),
            *options.words(folder),
        ]
        return Verdict.model_validate(_answer_of(folder, words))


def judge_many(
    pairs: Iterable[tuple[str | os.PathLike[str], Given]],
    *,
    out: str | os.PathLike[str] | None = None,
    device: Device | None = None,
    protocol: Protocol | None = None,
    precision: Precision | None = None,
    contract: Contract | None = None,
    mode: Mode | None = None,
    timing: bool = True,
    wait_s: float = 0.0,
) -> list[Verdict | CudaL1Error]:
    """Judge many candidates, on all devices of the machine; each problem is prepared once.

    Args:
        pairs: problems and candidates, as for `judge`; `problem_text` makes a problem of a class.
        out: a file of verdicts. Those that it holds are not made again, so that a call that was
            stopped goes on. None keeps nothing.
        device: see `judge`, as for the other options.
        protocol: see `judge`.
        precision: see `judge`.
        contract: see `judge`.
        mode: see `judge`.
        timing: see `judge`.
        wait_s: see `judge`.

    Returns:
        In the order of the pairs, a verdict each, or the error that says why there is none.

    Raises:
        CudaL1Error: nothing could be judged, or judging stopped early (verdicts are in `out`).
    """
    options = _Options(device, protocol, precision, contract, mode, timing, wait_s)
    texts = [(_problem_source(problem), _candidate_source(new)) for problem, new in pairs]
    if not texts:
        return []
    numbers = {text: n for n, text in enumerate(dict.fromkeys(text for text, _ in texts), start=1)}
    with tempfile.TemporaryDirectory(prefix="cudal1-") as place:
        folder = Path(place)
        for text, number in numbers.items():
            _write(folder / "suite" / "level1" / f"{number}_problem.py", text)
        rows = [
            json.dumps({"level": 1, "problem_id": numbers[problem], "source": source})
            for problem, source in texts
        ]
        _write(folder / "candidates.jsonl", "".join(f"{row}\n" for row in rows))
        file = folder / "verdicts.jsonl" if out is None else Path(out).absolute()
        words = ["--suite", "kernelbench:suite", "--candidates", "candidates.jsonl"]
        words += ["--out", str(file), *options.words(folder)]
        if timing:
            words += ["--baselines", "none"]
        answer = _answer_of(folder, words)
        verdicts = _Verdicts(file, answer["device_kind"], answer["protocol_id"])
    return [
        verdicts.find(problem, source) or _why_none(numbers[problem], answer["complaints"])
        for problem, source in texts
    ]


@dataclass(frozen=True)
class _Options:
    """The options of `judge`, as its caller gave them."""

    device: Device | None
    protocol: Protocol | None
    precision: Precision | None
    contract: Contract | None
    mode: Mode | None
    timing: bool
    wait_s: float

    def words(self, folder: Path) -> Iterator[str]:
        """Yield the command's options; a protocol that is no file is written to the folder."""
        yield "--json"
        protocol = self.protocol
        if isinstance(protocol, EvalProtocol):
            content = protocol.model_dump_json()  # JSON is YAML
            _write(folder / "protocol.yaml", content)
            protocol = "protocol.yaml"
        elif protocol is not None and Path(protocol).exists():
            protocol = Path(protocol).absolute()
        given = {
            "device": self.device,
            "protocol": protocol,
            "precision": self.precision,
            "contract": self.contract,
            "mode": self.mode,
            "wait": self.wait_s,
        }
        for name, value in given.items():
            if value is not None:
                yield f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"
        if not self.timing:
            yield "--checks-only"


class _Verdicts:
    """The verdicts of a file, by problem and candidate.

    A file may hold those of other devices and protocols, too. One under the protocol that was asked
    for comes before one that was made with timing, where none was asked for.
    """

    def __init__(self, file: Path, device_kind: str, protocol_id: str) -> None:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = [Verdict.model_validate(json.loads(line)["verdict"]) for line in lines]
        mine = [each for each in found if each.device_kind == device_kind]
        mine.sort(key=lambda each: each.protocol_id == protocol_id)
        self._found = {(each.problem_id, each.candidate_id): each for each in mine}

    def find(self, problem: str, source: str) -> Verdict | None:
        """Return the verdict on a candidate's source, if there is one."""
        asked = Candidate(problem_id=content_id(problem), source=source)
        return self._found.get((asked.problem_id, asked.id))


def _why_none(number: int, complaints: Sequence[str]) -> CudaL1Error:
    prefix = f"kernelbench/L1/{number:02d}_problem: "
    mine = [line.removeprefix(prefix) for line in complaints if line.startswith(prefix)]
    general = [line for line in complaints if not line.startswith("kernelbench/L1/")]
    return SuiteError("; ".join(mine or general) or "no verdict was given")


def _problem_source(given: str | os.PathLike[str]) -> str:
    problem = problem_or_path(given, None, None)
    return problem if isinstance(problem, str) else _read(problem, PROBLEM_NAMES)


def _candidate_source(given: Given) -> str:
    candidate = candidate_or_path(given)
    if isinstance(candidate, str):
        return candidate
    return _read(candidate, ("ModelNew",), any_codec=True)


def _read(path: Path, names: tuple[str, ...], *, any_codec: bool = False) -> str:
    if path.is_dir():
        return read_folder(path, names, any_codec=any_codec)
    return read_python(path, raising=SuiteError, any_codec=any_codec)


def _as_argument(given: str | Path, file: Path) -> str:
    """Return a path; a text is written to the file, and messages call it by the file's name."""
    if isinstance(given, Path):
        return str(given)
    _write(file, given)
    return file.name


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.write_bytes(text.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"{file.name}: is no text that UTF-8 can hold ({error.reason})") from None


def _answer_of(folder: Path, words: Sequence[str]) -> Any:
    """Run `cudal1 judge` in the folder and return its answer.

    Raises:
        CudaL1Error: it ended without one; the message is its complaint.
        KeyboardInterrupt: it, or this process, was interrupted.
    """
    _refuse_recursion()
    process = subprocess.Popen(
        processes.python("cudal1.cli", "judge", *words),
        cwd=folder,
        env=processes.inherited(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        said, complaints = process.communicate()
    except BaseException:  # a Ctrl-C, too: the command ends first, then it is raised again
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    lines = complaints.splitlines()
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if process.returncode not in (GOOD, BAD):
        # the last line names what is wrong; progress and notes come before it
        raise CudaL1Error(lines[-1] if lines else f"cudal1 judge ended with {process.returncode}")
    for line in lines:
        if line.startswith(NOTE):
            log.warning("cudal1: %s", line.removeprefix(NOTE))
    return json.loads(said)


def _refuse_recursion() -> None:
    """Refuse a call of a module that is being judged: each would start the next.

    Processes of ours have `start.py` as their main program.
    """
    mains = (sys.modules.get(name) for name in ("__main__", "__mp_main__"))
    if any(getattr(main, "__file__", None) == processes.START for main in mains):
        raise CudaL1Error(
            "cudal1.judge was called by a module that is being judged: call it under "
            "`if __name__ == '__main__':`"
        )
