"""A device's judge has a process of its own, which ends with the process that asked for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cudal1.errors import DeviceError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.schedule.device_processes import (
    DeviceProcess,
    processes_found_here,
    processes_here,
)
from cudal1.harness.schedule.isolated import MODULE
from cudal1.problem import DeviceClass

KILLED = """
import os, signal
from cudal1.harness.schedule.isolated import Isolated

if __name__ == "__main__":
    print(Isolated().submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
LIMIT_S = 120.0


def test_every_device_has_one_process_which_stays() -> None:
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-{number}"}) for number in range(2)]
    with processes_here(twins) as device_processes:
        asked = [
            [device_process.process.submit(os.getpid).result() for _ in range(3)]
            for device_process in device_processes
        ]
    assert [len(set(pids)) for pids in asked] == [1, 1]
    assert len({os.getpid(), asked[0][0], asked[1][0]}) == 3


@pytest.mark.slow
def test_a_device_s_process_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    process = Path(f"/proc/{int(done.stdout)}")
    deadline = time.monotonic() + LIMIT_S
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not process.exists()


def test_a_device_process_is_named_by_its_device_and_its_machine() -> None:
    cpu = find_device(DeviceClass.CPU)
    with processes_here([cpu]) as (device_process,):
        assert str(device_process) == f"cpu {cpu.id}"
        assert (
            str(DeviceProcess(cpu, device_process.process, "10.0.0.7"))
            == f"cpu {cpu.id} on 10.0.0.7"
        )


def test_the_first_device_s_process_starts_before_devices_are_looked_for() -> None:
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-{number}"}) for number in range(2)]
    started: list[list[int]] = []

    def find() -> list[Device]:
        started.append(_judging())
        return twins

    before = _judging()
    with processes_found_here(find) as device_processes:
        assert [device_process.device for device_process in device_processes] == twins
        first = device_processes[0].process.submit(os.getpid).result()
        assert device_processes[1].process.submit(os.getpid).result() != first
    assert set(started[0]) - set(before) == {first}


def test_the_first_process_ends_if_no_device_is_found() -> None:
    before = _judging()

    def find() -> list[Device]:
        raise DeviceError("no GPU can be used")

    with pytest.raises(DeviceError), processes_found_here(find):
        pass
    assert set(_judging()) <= set(before)


def _judging() -> list[int]:
    """Return the processes of judges that this process has started."""
    mine = psutil.Process().children()
    return [each.pid for each in mine if any(MODULE in word for word in each.cmdline())]
