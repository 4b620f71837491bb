"""A provider that replays recorded completions: attempt k of a problem gets its k-th recording.

A recording is a JSON object on one line. `suite`, `level`, `number` and `name` identify the
problem, `text` is the answer, and `model` names its author. The shipped recordings (`recordings/`)
were written by hand for the shipped suite. Their `expect` tells readers and tests what the answer
is (`correct`, `wrong`, `cheat` or `needs_cuda`), and `technique` what it uses. The provider reads
neither: the harness alone says what an answer is worth.

A checkout of the CUDA-L1 release is a folder of recordings, too: the kernels of its GPU kinds for
KernelBench, or of one kind if its file is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from cudal1.candidate import Completion
from cudal1.errors import ProviderError
from cudal1.llm.at_once import answering_at_once
from cudal1.llm.cuda_l1 import KERNELS_FOLDER, KernelRow, as_read, by_place
from cudal1.llm.provider import EXHAUSTED, Exchange, Receipts, Request, completion_of
from cudal1.record import Record, content_id
from cudal1.settings.provider_settings import ReplaySettings

ProblemKey = tuple[str, int, int, str]
"""Suite, level, number and name; the name is empty where an author does not say it."""


class Recording(Record):
    """One line of a recordings file."""

    suite: str
    level: int
    number: int
    name: str
    model: str
    """The author of the text."""
    text: str
    finish_reason: str = "stop"
    expect: Literal["correct", "wrong", "cheat", "needs_cuda"] | None = None
    """The author's claim about the text; for tests and documentation only."""
    technique: str | None = None
    """The technique of the text, in a word or two; for documentation only."""

    @property
    def problem_key(self) -> ProblemKey:
        """The key of the problem that the recording answers."""
        return (self.suite, self.level, self.number, self.name)


class ReplayProvider:
    """A provider that answers from recordings, and says `exhausted` when a problem has no more."""

    is_seeded = False

    def __init__(self, name: str, settings: ReplaySettings) -> None:
        """Load the recordings; raise ProviderError when they are absent or malformed."""
        self.name = name
        path = Path(str(files("cudal1") / "llm" / "recordings"))
        if settings.path is not None:
            path = Path(settings.path)
        recordings = load_recordings(path, provider=name)
        self._by_problem: dict[ProblemKey, list[Recording]] = {}
        for recording in recordings:
            self._by_problem.setdefault(recording.problem_key, []).append(recording)
        self.fingerprint = content_id("replay", *(r.model_dump_json() for r in recordings))

    @property
    def width(self) -> int:
        """One: the answers are there already."""
        return 1

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """Open an exchange that answers each request with its attempt's recording, in order."""
        return answering_at_once(self._answer, receipts)

    def _answer(self, request: Request) -> Completion:
        problem = request.problem
        place = (problem.suite, problem.level, problem.number)
        recorded = [
            *self._by_problem.get((*place, problem.name), ()),
            *self._by_problem.get((*place, ""), ()),
        ]
        text, finish_reason = "", EXHAUSTED
        if request.attempt < len(recorded):
            recording = recorded[request.attempt]
            text, finish_reason = recording.text, recording.finish_reason
        return completion_of(request, provider=self.name, text=text, finish_reason=finish_reason)


def load_recordings(path: Path, *, provider: str = "replay") -> list[Recording]:
    """Return all recordings of a `.jsonl` file, or of a folder's such files by name, in file order.

    A checkout of the CUDA-L1 release, or a file of it, has recordings of its own kind.

    Raises:
        ConfigError: a line of the release is malformed.
        ProviderError: no recordings are there, a file is unreadable, or a line is malformed (the
            message gives file and line).
    """
    if released := _released(path):
        return [each for file in released for each in _kernels(file)]
    sources = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not sources:
        raise ProviderError(
            f"provider {provider}: no .jsonl file in {path}; correct its `path` in params.yaml"
        )
    return [recording for source in sources for recording in _read(source, provider)]


def _read(path: Path, provider: str) -> Iterator[Recording]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ProviderError(
            f"provider {provider}: {path} cannot be read ({error.strerror}); "
            "correct its `path` in params.yaml"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Recording.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ProviderError(
                f"provider {provider}: {path}, line {number}: {where + ': ' if where else ''}"
                f"{first['msg']}; correct or remove the line"
            ) from error


def _released(path: Path) -> list[Path]:
    """Return the files of the CUDA-L1 release at a path; none if it is something else."""
    if path.is_dir():
        return sorted((path / KERNELS_FOLDER).glob("*.json"))
    is_one = path.suffix == ".json" and path.parent.name == KERNELS_FOLDER and path.is_file()
    return [path] if is_one else []


def _kernels(file: Path) -> Iterator[Recording]:
    """Yield the kernels of one GPU kind as answers to KernelBench's problems."""
    for (level, number), row in sorted(by_place(file, KernelRow).items()):
        source = as_read(row.custom_code)
        if source is not None:
            yield Recording(
                suite="kernelbench",
                level=level,
                number=number,
                name="",
                model=f"cuda-l1 {file.stem}",
                text=f"```python\n{source.rstrip()}\n```\n",
            )
