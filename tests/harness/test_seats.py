"""A device's judge has a process of its own, and no longer a life than whoever asked for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from cudal1.harness import find_device
from cudal1.harness.seats import Seat, seats_here
from cudal1.problem import DeviceClass

KILLED = """
import os, signal
from cudal1.harness.isolated import Isolated

if __name__ == "__main__":
    print(Isolated().submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
LIMIT_S = 120.0


def test_every_device_has_one_process_which_stays() -> None:
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-{number}"}) for number in range(2)]
    with seats_here(twins) as seats:
        asked = [[seat.process.submit(os.getpid).result() for _ in range(3)] for seat in seats]
    assert [len(set(pids)) for pids in asked] == [1, 1]
    assert len({os.getpid(), asked[0][0], asked[1][0]}) == 3


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    process = Path(f"/proc/{int(done.stdout)}")
    deadline = time.monotonic() + LIMIT_S
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not process.exists()


def test_a_seat_is_named_by_its_device_and_its_machine() -> None:
    cpu = find_device(DeviceClass.CPU)
    with seats_here([cpu]) as (seat,):
        assert str(seat) == f"cpu {cpu.id}"
        assert str(Seat(cpu, seat.process, "10.0.0.7")) == f"cpu {cpu.id} on 10.0.0.7"
