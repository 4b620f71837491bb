"""Outputs are read from a worker's own memory, and any address is safe."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.sandbox.memory import Look, Memory, touch_ns
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem
from tests.harness.corpus import GROUPS, class_of
from tests.harness.inside import Start, counts, open_zygote, start_worker, until

PAGE = 4096
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p


@pytest.fixture
def own() -> Iterator[Memory]:
    """The memory of this process."""
    memory = Memory()
    memory.open(os.getpid())
    yield memory
    memory.close()


def read(memory: Memory, place: int, size: int) -> bytes:
    """Return a target's content after a read; it was full of dots before."""
    target = bytearray(b"." * size)
    memory.read(memoryview(target), place)
    return bytes(target)


def pages(count: int) -> int:
    """Map fresh pages, full of `x`, and return their address."""
    start = libc.mmap(None, ctypes.c_size_t(count * PAGE), 3, 0x22, -1, ctypes.c_long(0))
    ctypes.memset(start, ord("x"), count * PAGE)
    return start


def drop(start: int) -> None:
    assert libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(PAGE)) == 0


# --- any number ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [0, 1, -1, -(2**63), 2**47, 2**47 - PAGE, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30],
)
def test_an_address_that_is_not_mapped_is_not_read(own: Memory, place: int) -> None:
    assert read(own, place, 8) == b"." * 8


def test_mapped_memory_is_read_and_a_mapping_that_ends_early_is_read_to_its_end(
    own: Memory,
) -> None:
    start = pages(2)
    assert read(own, start, 2 * PAGE) == b"x" * 2 * PAGE
    drop(start + PAGE)
    assert read(own, start + PAGE - 3, 8) == b"xxx....."
    drop(start)
    assert read(own, start, 8) == b"." * 8


def test_a_read_past_a_mapping_stops_at_its_end(own: Memory) -> None:
    start = pages(1)
    assert read(own, start, 64 << 20)[-1:] == b"."
    drop(start)


def test_a_process_that_is_absent_or_unreadable_is_not_read() -> None:
    memory = Memory()
    memory.open(0)
    assert read(memory, pages(1), 8) == b"." * 8


def test_a_closed_memory_reads_nothing_though_its_descriptor_is_used_again() -> None:
    memory = Memory()
    memory.open(os.getpid())
    start, number = pages(1), memory._descriptor
    memory.close()
    memory.close()
    other = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    assert other == number
    assert read(memory, start, 8) == b"." * 8
    os.close(other)


# --- pages that have one address ------------------------------------------------------------------

SHARED, PRIVATE, ANONYMOUS = 0x01, 0x02, 0x20


def mapped(flags: int, file: int = -1) -> int:
    return libc.mmap(None, ctypes.c_size_t(2 * PAGE), 3, flags, file, ctypes.c_long(0))


@pytest.fixture
def file() -> Iterator[int]:
    with tempfile.TemporaryFile() as opened:
        opened.write(b"x" * 2 * PAGE)
        opened.flush()
        yield opened.fileno()


def test_a_worker_s_own_pages_are_not_doubtful_once_they_were_touched(own: Memory) -> None:
    start = mapped(PRIVATE | ANONYMOUS)
    ctypes.memset(start, 1, 2 * PAGE)
    assert own.look(start + 8, 2 * PAGE - 8) == Look([])


@pytest.mark.parametrize("flags", [SHARED, PRIVATE])
def test_pages_that_are_not_there_are_doubtful_and_counted(
    own: Memory, file: int, flags: int
) -> None:
    places = mapped(flags, file), mapped(PRIVATE | ANONYMOUS)
    for start in places:
        found = own.look(start, 2 * PAGE)
        assert found == Look([slice(0, PAGE), slice(PAGE, 2 * PAGE)], num_untouched=2)


def test_the_first_read_of_a_page_takes_longer() -> None:
    assert 10 < touch_ns() < 100_000


def test_a_disturbed_second_read_does_not_make_the_first_one_cheap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cudal1.harness.sandbox.memory.TRIED_BYTES", 4 * PAGE)
    lasting = [(1_000, 200), (1_100, 5_000), (9_000, 210), (1_000, 200), (1_000, 200)]
    moments = [moment for first, again in lasting for moment in (0, first, first + again)]
    monkeypatch.setattr(
        "cudal1.harness.sandbox.memory.time.perf_counter_ns", iter(moments).__next__
    )
    assert touch_ns.__wrapped__() == (1_000 - 200) / 4


@pytest.mark.parametrize("by_whom", ["itself", "its judge"])
@pytest.mark.parametrize("flags", [SHARED, PRIVATE])
def test_pages_of_a_file_are_doubtful_once_they_were_read(
    own: Memory, file: int, flags: int, by_whom: str
) -> None:
    start = mapped(flags, file)
    if by_whom == "itself":
        ctypes.string_at(start, 2 * PAGE)
    else:
        own.read(memoryview(bytearray(2 * PAGE)), start)
    both = [slice(0, PAGE - 8), slice(PAGE - 8, 2 * PAGE - 8)]
    assert own.look(start + 8, 2 * PAGE - 8).doubtful == both


def test_a_page_of_a_file_that_was_written_to_privately_is_not_doubtful(
    own: Memory, file: int
) -> None:
    start = mapped(PRIVATE, file)
    ctypes.string_at(start, 2 * PAGE)
    ctypes.memset(start, 1, PAGE)
    assert own.look(start, 2 * PAGE).doubtful == [slice(PAGE, 2 * PAGE)]


def test_shared_pages_are_doubtful_even_without_a_file(own: Memory) -> None:
    start = mapped(SHARED | ANONYMOUS)
    ctypes.memset(start, 1, PAGE)
    assert own.look(start, PAGE).doubtful == [slice(0, PAGE)]


@pytest.mark.parametrize("place", [2**63 - PAGE, 2**63, 2**64 - PAGE])
def test_an_address_that_is_not_mapped_is_doubtful(own: Memory, place: int) -> None:
    assert own.look(place, 8).doubtful == [slice(0, 8)]


# --- of a real worker ----------------------------------------------------------------------------

HERE = """
word = ctypes.create_string_buffer(b"here")
counts[0] = ctypes.addressof(word)
"""


def told(worker: Worker) -> bytes:
    until(lambda: counts(worker)[0] > 0)
    return read(worker.memory, counts(worker)[0], 4)


@pytest.fixture
def in_place(needs: Callable[[str], None]) -> None:
    needs("outputs_in_place")


@pytest.mark.usefixtures("in_place")
def test_the_judge_reads_the_worker_that_the_kernel_names(start: Start) -> None:
    one, other = start(HERE + "time.sleep(60)"), start(HERE + "word[:4] = b'else'; time.sleep(60)")
    assert told(one) == b"here"
    until(lambda: told(other) == b"else")
    one.close()
    assert told(one) == b"...."


@pytest.mark.usefixtures("in_place")
def test_a_worker_that_makes_itself_unreadable_is_read_nonetheless(start: Start) -> None:
    assert told(start("libc.prctl(4, 0, 0, 0, 0)" + HERE + "time.sleep(60)")) == b"here"


@pytest.mark.usefixtures("in_place")
def test_a_worker_that_runs_another_program_leaves_nothing_to_read(start: Start) -> None:
    worker = start(HERE + "time.sleep(0.1); os.execv('/bin/sleep', ['sleep', '60'])")
    until(lambda: told(worker) == b"....")
    assert worker.is_alive()


# --- where it is refused -------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_that_cannot_be_read_store_their_outputs_and_verdicts_lack_the_layer(
    open_pool: Callable[..., AbstractContextManager[Pool]],
    named_problem: Callable[[str], Problem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Memory, "open", lambda self, process: None)
    problem = named_problem("linear")
    with open_pool() as pool:
        candidate = Candidate(problem_id=problem.id, source=problem.null_source)
        verdict = pool.judge(problem, candidate).verdict
    assert class_of(verdict) in GROUPS["correct"], verdict.reason
    assert "outputs_in_place" not in verdict.sandbox


@pytest.mark.slow
def test_a_worker_that_cannot_be_read_after_others_could_is_an_error(
    in_place: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote = open_zygote()
    try:
        with start_worker(zygote, "") as worker:
            assert worker.job.in_place
        monkeypatch.setattr(Memory, "open", lambda self, process: None)
        with pytest.raises(WorkerError, match="cannot be read"):
            start_worker(zygote, "")
    finally:
        zygote.close()
