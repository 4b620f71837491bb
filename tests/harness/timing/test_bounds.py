"""All processes of a worker together keep to bounds, by control groups or by the warden."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.harness.sandbox.cgroup import Cage, parents
from cudal1.harness.sandbox.idle_worker import IdleWorker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.shared.wire import Job
from tests.harness.inside import Start, counts, in_namespaces, start_worker, until

HOGS = """
memory = counts.numpy()
for which in range(1, 7):
    if os.fork() == 0:
        mine = mmap.mmap(-1, 300 << 20)
        for start in range(0, len(mine), 4096):
            mine[start] = 1
        memory[which] = 1
        time.sleep(60)
memory[0] = 1
time.sleep(60)
"""


@pytest.fixture
def no_spares(zygote: Zygote) -> Iterator[None]:
    """Close workers that were forked under other settings, before a test and after it."""

    def close_all() -> None:
        while zygote._idle_workers:
            zygote._idle_workers.pop().close()

    close_all()
    yield
    close_all()


@pytest.mark.slow
@pytest.mark.usefixtures("no_spares")
def test_children_together_hold_no_more_than_their_worker_may_in_a_control_group(
    start: Start, needs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("cgroup")

    def bound(idle: IdleWorker, job: Job) -> None:
        """Bound the worker by its group alone; the warden would act first."""
        idle._cage.bound(job.memory_bytes)

    monkeypatch.setattr(IdleWorker, "bound", bound)
    worker = start(HOGS)
    until(lambda: counts(worker)[0] > 0 or not worker.is_alive())
    time.sleep(2)
    assert sum(counts(worker)[1:7]) < 6


@pytest.mark.slow
@pytest.mark.usefixtures("no_spares")
def test_the_warden_ends_children_that_hold_more_together(
    start: Start, needs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("freezer")
    monkeypatch.setattr(Cage, "make", lambda: Cage(()))
    worker = start(HOGS)
    assert "cgroup" not in worker.layers
    until(lambda: not worker.is_alive())


@pytest.mark.slow
def test_a_fork_bomb_ends_at_a_bound_and_with_its_worker(
    start: Start, needs: Callable[[str], None]
) -> None:
    needs("pid_limit")
    worker = start("""
        memory = counts.numpy()
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(60)
                memory[0] += 1
        except OSError:
            memory[1] = 1
        time.sleep(60)
    """)
    until(lambda: counts(worker)[1] > 0)
    assert counts(worker)[0] < 600
    worker.freeze()
    worker.thaw()
    assert worker.is_alive()
    before = len(in_namespaces())
    worker.close()
    assert len(in_namespaces()) < before - 100


# --- control groups ------------------------------------------------------------------------------


def _machine(root: Path, own: str, mounts: str, delegated: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    (root / "proc/self/mountinfo").write_text(mounts)
    for group, controllers in delegated.items():
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / "cgroup.subtree_control").write_text(controllers)
    return root


UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_the_nearest_group_that_passes_both_controllers_on_is_taken(tmp_path: Path) -> None:
    groups = {
        "sys/fs/cgroup": "cpu memory pids",
        "sys/fs/cgroup/user.slice": "memory pids",
        "sys/fs/cgroup/user.slice/session": "",
    }
    root = _machine(tmp_path, "0::/user.slice/session\n", UNIFIED, groups)
    assert parents(root) == [tmp_path / "sys/fs/cgroup/user.slice"]


def test_a_group_that_does_not_pass_on_memory_is_not_taken(tmp_path: Path) -> None:
    root = _machine(tmp_path, "0::/a\n", UNIFIED, {"sys/fs/cgroup": "cpu pids"})
    assert parents(root) == []


def test_each_controller_has_a_group_in_the_older_hierarchies(tmp_path: Path) -> None:
    mounts = "".join(
        f"3{i} 31 0:3{i} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
        for i, name in enumerate(("memory", "pids", "freezer"))
    )
    own = "9:pids:/b\n7:freezer:/\n4:memory:/a\n0::/\n"
    root = _machine(tmp_path, own, mounts, {})
    expected = [tmp_path / "sys/fs/cgroup/memory/a", tmp_path / "sys/fs/cgroup/pids/b"]
    assert parents(root) == expected


def test_a_group_is_gone_once_its_worker_is_closed(
    zygote: Zygote, needs: Callable[[str], None]
) -> None:
    needs("cgroup")
    worker = start_worker(zygote, "time.sleep(60)")
    groups = worker._idle._cage.groups
    assert all(len((group / "cgroup.procs").read_text().split()) >= 3 for group in groups)
    worker.close()
    assert not any(group.exists() for group in groups)
