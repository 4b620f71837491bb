"""A candidate's next process finds what an earlier one compiled."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from cudal1.candidate import Candidate
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.interval import Ending, wait_ready
from cudal1.harness.sandbox.builds import MAX_BYTES, Builds
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.shared.wire import MAX_BUILDS_BYTES
from cudal1.harness.worker import builds
from cudal1.problem import Problem
from cudal1.verdict import Status
from tests.harness.inside import LAYOUT, LIMIT_S, TOP, counts, open_zygote, start_worker

COMPILE = """
from pathlib import Path
made = Path(os.environ["TRITON_HOME"], "cache", "kernel")
counts[0] = len(made.read_bytes()) if made.exists() else -1
made.parent.mkdir(parents=True, exist_ok=True)
made.write_bytes(bytes(300))
"""
PLACES = sorted(builds.PLACES)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    opened = open_zygote()
    yield opened
    opened.close()


def _started(zygote: Zygote, body: str, built: bytes = b"") -> Worker:
    """Start a worker that has imported `body`."""
    first = start_worker(zygote, "")
    job = first.job
    first.close()
    ring = BurstRunner(LAYOUT, torch.device("cpu")).make_ring([])
    worker = zygote.welcome(zygote.begin(job, ring))
    worker.load(TOP + textwrap.dedent(body), built)
    assert wait_ready(worker, Patience(LIMIT_S)) is Ending.DONE, worker.display_text()
    return worker


@pytest.mark.slow
def test_the_module_that_compiles_extensions_is_imported_already(zygote: Zygote) -> None:
    counting = 'import sys\ncounts[0] = "torch.utils.cpp_extension" in sys.modules'
    with _started(zygote, counting) as worker:
        assert counts(worker)[0] == 1


def test_a_compiled_file_is_there_in_the_next_process(zygote: Zygote) -> None:
    with _started(zygote, COMPILE) as first:
        assert counts(first)[0] == -1
        built = first.hand_over()
    with _started(zygote, COMPILE, built) as second:
        assert counts(second)[0] == 300


def test_a_build_folder_has_one_name_in_every_process_and_files_of_its_own_in_each(
    zygote: Zygote,
) -> None:
    body = f"""
        import zlib
        told = " ".join(os.environ[name] for name in {PLACES!r})
        counts[0] = zlib.crc32(told.encode())
    """
    with _started(zygote, body) as first, _started(zygote, body) as second:
        has_own = "own_proc" in first.layers
        assert (counts(first)[0] == counts(second)[0]) is has_own


def test_a_worker_that_compiled_nothing_hands_over_nothing(zygote: Zygote) -> None:
    with _started(zygote, "") as worker:
        assert worker.hand_over() == b""
        assert worker.is_alive()


HOSTILE = {
    "says_nothing": "ours.hand_over = lambda *_: time.sleep(60)",
    "says_more_than_there_is": "ours.hand_over = lambda *_: 1 << 40",
    "goes": "ours.hand_over = lambda *_: os._exit(0)",
    "closes_the_channel": """
        while "channel" not in frame.f_locals:
            frame = frame.f_back
        ours.hand_over = lambda *_: os.close(frame.f_locals["channel"])
    """,
    "writes_without_end": """
        def endless(descriptor, home):
            with open(descriptor, "wb") as file:
                while True:
                    file.write(bytes(1 << 24))

        ours.hand_over = endless
    """,
    "seals": """
        import fcntl

        def seal(descriptor, home):
            for each in (1, 2, 4, 8, 16):
                try:
                    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, each)
                except OSError:
                    pass
            os.ftruncate(descriptor, 0)

        ours.hand_over = seal
    """,
    "stops_half_way": """
        def half(descriptor, home):
            os.write(descriptor, b"half an archive")
            time.sleep(60)

        ours.hand_over = half
    """,
}
"""Code that a candidate may put in the place of our own `hand_over`."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_handover_harms_its_own_candidate_alone(
    zygote: Zygote, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudal1.harness.sandbox.sandbox.BUILDS_LIMIT_S", 1.0)
    body = "ours = sys.modules['cudal1.harness.worker.builds']\n" + textwrap.dedent(HOSTILE[name])
    with _started(zygote, body) as worker:
        assert worker.hand_over() == b""


def test_builds_that_are_too_large_are_not_handed_over_and_do_no_harm(zygote: Zygote) -> None:
    large = COMPILE.replace("bytes(300)", f"bytes({MAX_BUILDS_BYTES} + 1)")
    with _started(zygote, large) as worker:
        assert worker.hand_over() == b""
        assert worker.is_alive()


def test_files_that_change_during_the_handover_do_no_harm(zygote: Zygote) -> None:
    body = (
        COMPILE
        + """
def change():
    while True:
        for number in range(100):
            Path(made.parent, str(number)).touch()
        for number in range(100):
            Path(made.parent, str(number)).unlink()

threading.Thread(target=change, daemon=True).start()
"""
    )
    with _started(zygote, body) as worker:
        worker.hand_over()
        assert worker.is_alive()


def test_an_unpacked_file_is_never_newer_than_it_was(tmp_path: Path) -> None:
    """Otherwise ninja makes everything again."""
    home, other = tmp_path / "home", tmp_path / "other"
    made = home / builds.FOLDER / "main.o"
    made.parent.mkdir(parents=True)
    other.mkdir()
    archive = tmp_path / "archive"
    for number in range(20):
        made.write_bytes(bytes(number))
        archive.write_bytes(b"")
        assert builds.hand_over(os.open(archive, os.O_RDWR), str(home)) > 0
        builds.unpack(os.open(archive, os.O_RDONLY), str(other))
        found = other / builds.FOLDER / "main.o"
        assert found.stat().st_mtime_ns <= made.stat().st_mtime_ns


@pytest.mark.parametrize("content", [b"no archive", bytes(10_000), b"\xff" * 512])
def test_an_archive_that_cannot_be_unpacked_does_not_stop_a_worker(
    zygote: Zygote, content: bytes
) -> None:
    with _started(zygote, COMPILE, content) as worker:
        assert counts(worker)[0] == -1


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    home, archive = tmp_path / "home", io.BytesIO()
    home.mkdir()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        packed.addfile(tarfile.TarInfo("../outside"))
    file = tmp_path / "archive"
    file.write_bytes(archive.getvalue())
    with file.open("rb") as opened:
        builds.unpack(os.dup(opened.fileno()), str(home))
    assert not (tmp_path / "outside").exists()


def test_a_build_made_ahead_is_kept_until_there_is_more() -> None:
    kept = Builds()
    kept.give("one", b"ahead")
    assert kept.of("one") == b"ahead"
    assert "one" not in kept  # its first process will be asked
    kept.keep("one", b"and more")
    assert "one" in kept
    kept.give("one", b"ahead")
    assert kept.of("one") == b"and more"
    kept.give("other", b"")
    assert "other" not in kept


def test_an_empty_handover_keeps_the_build_made_ahead() -> None:
    kept = Builds()
    kept.give("one", b"ahead")
    kept.keep("one", b"")
    assert kept.of("one") == b"ahead"
    assert "one" in kept  # its first process was asked


def test_the_oldest_builds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES > 2 * MAX_BUILDS_BYTES, "few builds of the largest size are kept"
    large, enough, most = 1000, 8, 20  # in place of megabytes and thousands
    monkeypatch.setattr("cudal1.harness.sandbox.builds.MAX_BYTES", large * enough)
    monkeypatch.setattr("cudal1.harness.sandbox.builds.MAX_CANDIDATES", most)
    kept = Builds()
    for number in range(most + 1):
        kept.keep(str(number), b"")
    assert [str(number) in kept for number in range(most + 1)] == [False] + [True] * most
    for number in range(enough + 1):
        kept.keep(f"large {number}", bytes(large))
    assert "large 0" not in kept
    assert [len(kept.of(f"large {number}")) for number in range(1, enough + 1)] == [large] * enough
    assert kept.of("large 0") == b""


def test_a_candidate_compiles_only_once(
    pool: Pool, named_problem: Callable[[str], Problem]
) -> None:
    silu = named_problem("silu")
    source = """
import os
from pathlib import Path

import torch
import torch.nn as nn

made = Path(os.environ["TRITON_HOME"], "kernel")
seen = made.exists()
made.parent.mkdir(exist_ok=True)
made.touch()


class ModelNew(nn.Module):
    def forward(self, x):
        if seen:
            raise RuntimeError("compiled before")
        return x * torch.sigmoid(x)
"""
    candidate = Candidate(problem_id=silu.id, source=source)
    assert pool.judge(silu, candidate, timing=False).verdict.status is Status.CORRECT
    again = pool.judge(silu, candidate, timing=False).verdict
    assert again.reason == "RuntimeError: compiled before (line 17)"
    other = Candidate(problem_id=silu.id, source=source + "# another one")
    assert pool.judge(silu, other, timing=False).verdict.status is Status.CORRECT


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja here")
def test_a_build_that_fills_the_disk_is_a_verdict_with_its_message(
    pool: Pool, named_problem: Callable[[str], Problem]
) -> None:
    silu = named_problem("silu")
    source = """
import os
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

here = Path(os.environ["TORCH_EXTENSIONS_DIR"])
here.mkdir(parents=True, exist_ok=True)
for number in range(1000):
    try:
        (here / str(number)).write_bytes(bytes(1 << 20))
    except OSError:
        break
load_inline("full", cpp_sources="int one() { return 1; }", functions=["one"])
"""
    candidate = Candidate(problem_id=silu.id, source=source)
    verdict = pool.judge(silu, candidate, timing=False).verdict
    assert verdict.status is Status.NO_BUILD
    assert "No space left on device" in (verdict.reason or "")
    after = Candidate(problem_id=silu.id, source=silu.null_source)
    assert pool.judge(silu, after, timing=False).verdict.status is Status.CORRECT


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja here")
def test_the_compiler_s_message_is_the_reason_where_the_judge_compiles(
    pool: Pool, named_problem: Callable[[str], Problem]
) -> None:
    silu = named_problem("silu")
    # PyTorch's own headers would cost ten seconds, and a compiler more memory than the pool gives
    source = """
from torch.utils.cpp_extension import load_inline

CODE = "#include <torch/version.h>\\nint one() { return no_such_thing; }"
load_inline("ours", cpp_sources=CODE, no_implicit_headers=True)
"""
    candidate = Candidate(problem_id=silu.id, source=source)
    verdict = pool.judge(silu, candidate, timing=False).verdict
    assert verdict.status is Status.NO_BUILD
    before, found, _ = (verdict.reason or "").partition("no_such_thing")
    assert found
    assert ": error: " in before


COMPILES = "c++ " + "-isystem /include " * 200 + "-c a.cpp -o a.o"
LINKS = "c++ a.o -shared -lnone -L/lib " + "-lc10 " * 200 + "-o a.so"
NINJA = "Error building extension 'a': [1/2] {}\n{}ninja: build stopped: subcommand failed.\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            NINJA.format(
                COMPILES,
                f"FAILED: a.o \n{COMPILES}\na.cpp: In function 'one':\n"
                "a.cpp:1:2: error: no x\n    1 | x\na.cpp:9:9: error: more\n",
            ),
            ": a.cpp:1:2: error: no x",
        ),
        (
            NINJA.format(
                COMPILES,
                f"[2/2] {LINKS}\nFAILED: [code=1] a.so \n{LINKS}\n"
                "/usr/bin/ld: cannot find -lnone\ncollect2: error: ld returned 1 exit status\n",
            ),
            ": /usr/bin/ld: cannot find -lnone collect2: error: ld returned 1 exit status",
        ),
        ("Error building extension 'a'", ""),
    ],
)
def test_a_failed_build_is_described_by_messages_of_its_tools_not_by_their_commands(
    said: str, shown: str
) -> None:
    described = builds.described(RuntimeError(said))
    assert described == f"RuntimeError: Error building extension 'a'{shown}"


def test_any_other_exception_is_described_as_it_is() -> None:
    assert builds.described(KeyError("x\ny")) == "KeyError: 'x\\ny'"
