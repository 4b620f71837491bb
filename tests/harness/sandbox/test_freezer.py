"""A frozen worker does nothing, and no process reaches the warden that sees to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.worker.warden import Warden
from tests.harness.inside import BURNERS, Start, Told, counts, in_namespaces, start_worker, until

STILL_S = 0.1


@pytest.mark.parametrize("how", BURNERS)
def test_a_frozen_worker_stands_still(how: str, start: Start, needs: Callable[[str], None]) -> None:
    needs("freezer")
    worker = start(BURNERS[how])
    for _ in range(3):
        before = counts(worker)
        until(lambda before=before: counts(worker) != before)
        worker.freeze()
        frozen = counts(worker)
        time.sleep(STILL_S)
        assert counts(worker) == frozen
        worker.thaw()
    assert worker.is_alive()


def test_a_worker_that_wakes_others_after_the_stop_is_noticed_and_ended(
    start: Start, needs: Callable[[str], None]
) -> None:
    needs("own_pids")
    not_ours = in_namespaces()  # such as the workers of pools that other tests left open
    worker = start("if os.fork() == 0: burn(0)")
    until(lambda: counts(worker)[0] > 0)
    worker.freeze()
    for process in in_namespaces() - not_ours:
        os.kill(process, signal.SIGCONT)  # as an unknown way would
    worker.thaw()
    assert not worker.is_alive()


def test_freezing_twice_equals_freezing_once(start: Start) -> None:
    worker = start("burn(0)")
    until(lambda: counts(worker)[0] > 0)
    for _ in range(2):
        worker.freeze()
    worker.thaw()
    before = counts(worker)
    until(lambda: counts(worker) != before)
    worker.thaw()
    assert worker.is_alive()


@pytest.mark.parametrize("when", ["dead", "closed", "frozen"])
def test_a_worker_that_is_gone_can_be_frozen_and_thawed(when: str, start: Start) -> None:
    worker = start("os._exit(0)" if when == "dead" else "time.sleep(60)")
    if when == "dead":
        until(lambda: not worker.is_alive())
    if when == "frozen":
        worker.freeze()
    if when in ("closed", "frozen"):
        worker.close()
    worker.freeze()
    worker.thaw()
    worker.freeze()
    assert not worker.is_alive()


def test_a_frozen_worker_is_gone_once_it_is_closed(start: Start) -> None:
    worker = start("if os.fork() == 0: burn(0)")
    until(lambda: counts(worker)[0] > 0)
    worker.freeze()
    worker.close()
    last = counts(worker)
    time.sleep(STILL_S)
    assert counts(worker) == last


# --- what they compute between two stops ---------------------------------------------------------


@pytest.mark.parametrize("how", ["is_busy_itself", "has_a_busy_thread", "has_a_busy_child"])
def test_the_computing_of_a_worker_and_all_that_it_started_is_counted(
    how: str, start: Start
) -> None:
    worker = start(BURNERS[how])
    until(lambda: counts(worker)[0] > 0)
    worker.freeze()
    before = counts(worker)[0]
    assert worker.worked_ns > 0
    worker.thaw()
    until(lambda: counts(worker)[0] > before)
    spun = counts(worker)[0]

    def has_worked() -> bool:
        """Return whether it has worked: on a busy core seldom, but never would be a defect."""
        time.sleep(STILL_S)
        worker.freeze()
        assert not worker.has_changed
        worked_ns = worker.worked_ns
        worker.thaw()
        return worked_ns > STILL_S * 1e9 / 10

    until(has_worked)
    assert counts(worker)[0] > spun


def test_sleep_is_not_counted(start: Start) -> None:
    worker = start("counts[0] = 1\ntime.sleep(60)")
    until(lambda: counts(worker)[0] > 0)
    time.sleep(STILL_S)
    for _ in range(2):
        worker.freeze()
        worker.thaw()
        time.sleep(STILL_S)
    worker.freeze()
    assert worker.worked_ns < STILL_S * 1e9 / 10


@pytest.mark.parametrize(
    "who", ["os.fork() or os._exit(0)", "threading.Thread(target=int).start()"]
)
def test_a_process_or_thread_that_came_or_went_is_reported(
    who: str, start: Start, needs: Callable[[str], None]
) -> None:
    needs("own_pids")
    worker = start(f"""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        counts[0] = 1
        while counts[1] == 0:
            time.sleep(0.001)
        {who}
        counts[2] = 1
        time.sleep(60)
    """)
    until(lambda: counts(worker)[0] == 1)
    worker.freeze()
    worker.thaw()
    worker.freeze()
    assert not worker.has_changed
    worker.thaw()
    worker.ring.memory[:512].view(torch.int64)[1] = 1
    until(lambda: counts(worker)[2] == 1)
    worker.freeze()
    assert worker.has_changed


def test_a_process_group_is_counted_without_a_namespace() -> None:
    busy = "import os\nos.fork()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", busy], start_new_session=True) as leader:
        warden = Warden(leader.pid, in_namespace=False)
        try:
            until(lambda: len(warden._processes()) == 2)
            seen = warden._freeze()
            assert seen is not None
            warden._worked(seen)
            worked_ns, held_bytes, _ = warden._worked(seen)
            assert worked_ns == 0
            assert held_bytes > 0

            def has_worked() -> bool:
                assert warden._thaw()
                time.sleep(STILL_S)
                seen = warden._freeze()
                assert seen is not None
                return warden._worked(seen)[0] > STILL_S * 1e9 / 10

            until(has_worked)
        finally:
            os.killpg(leader.pid, signal.SIGKILL)


# --- the warden ----------------------------------------------------------------------------------


def test_no_signal_reaches_the_warden(start: Start, needs: Callable[[str], None]) -> None:
    needs("own_pids")
    worker = start("""
        for number in set(signal.Signals) - {signal.SIGCHLD}:
            try:
                os.kill(1, number)
            except OSError:
                pass
        if os.fork() == 0:
            burn(0)
    """)
    until(lambda: counts(worker)[0] > 0)
    worker.freeze()
    worker.thaw()
    assert worker.is_alive()


@pytest.mark.parametrize(
    "name", ["mem", "environ", "maps", "fd", "root", "cwd", "auxv", "task/1/mem"]
)
def test_a_worker_can_read_nothing_of_the_warden(
    name: str, told: Told, needs: Callable[[str], None]
) -> None:
    needs("own_proc")
    if name == "fd":
        reading = "told = [os.readlink(f'/proc/1/fd/{n}') for n in range(64)]"
    elif name in ("root", "cwd"):
        reading = f"told = os.readlink('/proc/1/{name}')"
    else:
        reading = f"told = open('/proc/1/{name}', 'rb').read(1)"
    assert told(reading).startswith("PermissionError")


def test_a_worker_cannot_reach_the_warden_s_socket(told: Told) -> None:
    said = told("""
told = []
for n in os.listdir('/proc/self/fd'):
    try:
        told.append(os.readlink(f'/proc/self/fd/{n}'))
    except OSError:
        pass
""")
    assert said.count("socket:") == 1, said


# --- those that wait for a job -------------------------------------------------------------------


def test_idle_workers_stand_still_during_timing_and_can_still_be_called(zygote: Zygote) -> None:
    with start_worker(zygote, ""):  # some idle workers wait behind it
        pass
    waiting = list(zygote._idle_workers)
    assert waiting
    with zygote.still():
        assert all(idle.is_alive() for idle in waiting)
        with start_worker(zygote, "counts[0] = 7") as worker:
            until(lambda: counts(worker)[0] == 7)
        assert zygote._idle_workers == waiting[1:]  # no new one gets ready meanwhile
    with start_worker(zygote, "counts[0] = 8") as worker:
        until(lambda: counts(worker)[0] == 8)


def test_a_dismissed_worker_is_gone_once_the_zygote_has_settled(zygote: Zygote) -> None:
    with zygote.lent(start_worker(zygote, "")) as worker:
        assert worker.is_alive()
    zygote.settle()
    assert not worker.is_alive()
    assert not Path(worker.job.folder).exists()
