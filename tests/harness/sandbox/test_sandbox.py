"""Attacks from inside a real worker break no layer around it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import SandboxError
from cudal1.harness.sandbox.layers import LAYERS, MINIMUM, Layer, missing
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.shared import wire
from cudal1.harness.shared.places import readable
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from tests.harness.inside import ROOT, Start, Told, descendants, until

# --- system calls --------------------------------------------------------------------------------

CALLS = {
    "a_signal_by_a_timer": "libc.timer_create(1, ctypes.c_buffer(64), ctypes.c_buffer(8))",
    "a_signal_by_a_descriptor": "libc.fcntl(0, 10, 18)",
    "a_signal_by_a_queue": "libc.mq_open(b'/q', os.O_CREAT | os.O_RDWR, 0o600, None)",
    "another_wish_for_its_parent_s_death": "libc.prctl(1, 0, 0, 0, 0)",
    "limits_for_the_warden": "libc.prlimit(1, 7, ctypes.byref((ctypes.c_long * 2)(0, 0)), None)",
    "a_priority_for_the_warden": "libc.setpriority(0, 1, 19)",
    "memory_in_an_anonymous_file": "libc.memfd_create(b'm', 0)",
    "memory_in_a_segment": "libc.shmget(0, 4096, 0o1600)",
    "memory_in_a_message_queue": "libc.msgget(0, 0o1600)",
    "another_core": "libc.sched_setaffinity(0, 8, ctypes.byref(ctypes.c_uint64(3)))",
    "another_namespace": "libc.unshare(0x10000000)",
    "another_namespace_for_a_child": (
        "libc.syscall({'x86_64': 56}.get(os.uname().machine, 220), 0x10000011, 0, 0, 0, 0)"
    ),
    "a_socket": "libc.socket(1, 1, 0)",
    "to_trace": "libc.ptrace(16, os.getppid(), 0, 0)",
    "to_mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
}


@pytest.mark.parametrize("what", CALLS)
def test_a_worker_cannot_make_a_forbidden_system_call(
    what: str, told: Told, needs: Callable[[str], None]
) -> None:
    needs("seccomp")
    said = told(f"told = ({CALLS[what]}, ctypes.get_errno())")
    assert said.startswith("RuntimeError: (-1, 1)"), said


THREADED = """
import socket, sys, threading
sys.path.insert(0, {root!r})
from cudal1.harness.worker import confinement, seccomp
filtered, refused = threading.Event(), []

def driver():
    filtered.wait()
    try:
        socket.socket()
    except PermissionError:
        refused.append(True)

thread = threading.Thread(target=driver)
thread.start()
confinement.libc.prctl(confinement.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
assert seccomp.install(keep_group=False)
filtered.set()
thread.join()
print(refused)
"""


def test_threads_that_started_before_the_filter_are_filtered_too(
    needs: Callable[[str], None],
) -> None:
    needs("seccomp")
    done = subprocess.run(
        [sys.executable, "-c", THREADED.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[True]\n", done.stderr


# --- files ---------------------------------------------------------------------------------------


def _secrets(folder: Path) -> list[Path]:
    (folder / "key").write_text("secret")
    return [
        folder,
        folder / "key",
        ROOT / "params.yaml",
        ROOT / "pyproject.toml",
        ROOT,
        ROOT / "data",
        ROOT / "cudal1" / "llm",
        ROOT / "cudal1" / "suite",
        Path("/etc/shadow"),
        Path.home(),
        Path("/var"),
        Path("/"),
    ]


def test_a_worker_reads_no_file_of_the_judge_s(
    told: Told, tmp_path: Path, needs: Callable[[str], None]
) -> None:
    needs("landlock")
    paths = [str(path) for path in _secrets(tmp_path)]
    assert any(os.access(path, os.R_OK) for path in paths)
    assert told(f"told = [p for p in {paths} if readable(p)]").startswith("RuntimeError: [] ")


def test_a_worker_reads_no_file_of_another_worker_s(
    start: Start, told: Told, needs: Callable[[str], None]
) -> None:
    needs("landlock")
    other = start("time.sleep(60)").job.folder
    listing = f"told = [readable({other!r}), readable({other!r} + '/candidate.py')]"
    assert "[False, False]" in told(listing)


def test_the_judge_s_files_do_not_exist_for_a_worker(
    told: Told, tmp_path: Path, needs: Callable[[str], None]
) -> None:
    needs("bubblewrap")
    paths = [str(path) for path in _secrets(tmp_path)[:4]]
    assert "RuntimeError: []" in told(f"told = [p for p in {paths} if os.path.exists(p)]")


def test_a_worker_that_got_ready_for_convolutions_takes_its_job_and_has_nothing_more_open(
    zygote: Zygote, told: Told
) -> None:
    found: list[str] = []
    for reference in ("nn.Linear(2, 2)", "nn.Conv2d(2, 2, 3)"):
        zygote.renew()
        zygote.expect(1, reference)
        found.append(told("told = sorted(os.listdir('/proc/self/fd'))"))
    assert found[0] == found[1]
    assert found[0].startswith("RuntimeError: ['0', ")


def test_a_worker_writes_only_to_folders_of_its_own(told: Told) -> None:
    places = ["/var/tmp", "/etc", "/usr", "/root", str(ROOT), "/dev", "/proc/self", "/sys"]
    said = told(f"""
told = []
for place in {places} + ["/dev/shm", os.getcwd(), "/tmp"]:
    try:
        open(place + "/cudal1-w", "w").write("w")
        told.append(place)
    except OSError:
        pass
""")
    written = ast.literal_eval(said.removeprefix("RuntimeError: ").partition(" (line")[0])
    assert [Path(place).name for place in written][:1] == ["shm"]
    assert written[2:] == (["/tmp"] if own_tmp_is_possible() else [])
    assert not Path("/tmp/cudal1-w").exists()


def own_tmp_is_possible() -> bool:
    """Return whether nothing that a worker needs lies below /tmp."""
    return not any(path.resolve().is_relative_to("/tmp") for path in readable())


# a /tmp of its own would hide the checkout, so a worker has none there (`confinement.own_tmp`)
@pytest.mark.skipif(not own_tmp_is_possible(), reason="this checkout lies below /tmp")
def test_a_worker_s_tmp_is_empty(told: Told, needs: Callable[[str], None]) -> None:
    """Another worker leaves nothing there, and other programs of the machine have nothing there."""
    needs("private_folder")
    for _ in range(2):
        said = told("""
told = os.listdir("/tmp")
open("/tmp/w", "w").write("w")
""")
        assert said.startswith("RuntimeError: []"), said


def test_a_worker_can_still_compile_and_load_a_library(told: Told) -> None:
    said = told("""
open("f.c", "w").write("int f(void) { return 42; }")
done = subprocess.run(["cc", "-shared", "-o", "f.so", "f.c"], capture_output=True, text=True)
told = done.stderr or ctypes.CDLL("./f.so").f()
""")
    if "No such file or directory: 'cc'" in said:
        pytest.skip("no compiler here")  # the test is that one may run, not that there is one
    assert said.startswith("RuntimeError: 42"), said


# --- the end -------------------------------------------------------------------------------------

LONELY = """
import sys, time
sys.path.insert(0, {root!r})
from tests.harness.inside import counts, open_zygote, start_worker, until
zygote = open_zygote()
workers = [start_worker(zygote, '''
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        counts[0] += 1
        time.sleep(600)
''') for _ in range(2)]
until(lambda: all(counts(worker)[0] > 0 for worker in workers))
workers[0].freeze()
print(zygote._source.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_judge_leaves_no_process_and_no_folder() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LONELY.format(root=str(ROOT))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert child.stdout is not None
    folder = Path(child.stdout.readline().strip())
    before = descendants(child.pid)
    assert folder.is_dir()
    assert len(before) > 12
    child.kill()
    child.wait()
    child.stdout.close()
    until(lambda: not folder.exists())
    until(lambda: not any(Path(f"/proc/{process}").exists() for process in before))


# --- a machine that grants little ----------------------------------------------------------------

POOR = """
import ctypes, json, sys, time
sys.path.insert(0, {root!r})
from tests.harness.inside import BURNERS, counts, open_zygote, start_worker, until
libc = ctypes.CDLL(None)
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)  # so that no program that is started gets it back
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
assert libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())) == 0
zygote = open_zygote()
found = {{}}
for how, burner in BURNERS.items():
    with start_worker(zygote, burner) as worker:
        until(lambda: counts(worker)[0] > 0)
        worker.freeze()
        frozen = counts(worker)
        time.sleep(0.05)
        found[how] = counts(worker) == frozen and worker.is_alive()
        worker.thaw()
with start_worker(zygote, "raise RuntimeError([readable({root!r}), readable('/root')])") as worker:
    until(lambda: worker.state != 0)
    text = worker.display_text()
zygote.close()
print(json.dumps([worker.layers, found, text]))
"""


# the other tests run with the rights of any other user
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up what it is granted")
def test_a_worker_without_namespaces_still_freezes_and_reads_nothing() -> None:
    program = POOR.format(root=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    layers, found, text = json.loads(done.stdout)
    assert not {"own_pids", "own_proc", "bubblewrap"} & set(layers)
    if "freezer" in layers:
        assert all(found.values()), found
    if "landlock" in layers:
        assert text.startswith("RuntimeError: [False, False]")
    if {"landlock", "seccomp"} <= set(layers):
        assert not missing(layers)


@pytest.mark.slow
def test_only_an_unsafe_protocol_judges_below_the_minimum_and_it_marks_every_verdict(
    open_pool: Callable[..., AbstractContextManager[Pool]],
    quick: EvalProtocol,
    named_problem: Callable[[str], Problem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LAYERS, "moat", Layer("horsemen", "dig one"))
    problem, source = named_problem("silu"), named_problem("silu").null_source
    candidate = Candidate(problem_id=problem.id, source=source)
    minimum = (*MINIMUM, ("moat",))
    with open_pool(quick, minimum) as pool, pytest.raises(SandboxError) as caught:
        pool.judge(problem, candidate, timing=False)
    said = str(caught.value)
    assert all(part in said for part in ("no moat", "dig one", "protocol.unsafe"))
    assert "\n" not in said
    unsafe = quick.model_copy(update={"unsafe": True})
    with open_pool(unsafe, minimum) as pool:
        verdict = pool.judge(problem, candidate, timing=False).verdict
    assert verdict.is_successful
    assert verdict.is_unsafe
    assert verdict.protocol_id == unsafe.checks_only().id != quick.checks_only().id


# --- what is said about layers -------------------------------------------------------------------


def test_every_layer_that_a_worker_can_name_is_explained() -> None:
    assert set(wire.LAYERS) == set(LAYERS)
    assert {name for group in MINIMUM for name in group} <= set(LAYERS)


def test_one_layer_of_a_group_is_enough() -> None:
    assert missing({"landlock"}, (("landlock", "bubblewrap"),)) == []
    assert missing({"fork"}, (("landlock", "bubblewrap"), ("fork",))) == ["landlock or bubblewrap"]
