"""Provide device processes on every machine of a Ray cluster.

A relay on each machine keeps the processes that judge on its devices, as `processes_here` does, and
passes on what they are asked. The processes are no actors of Ray's: those would see one GPU each
and take the same core. A machine that leaves takes its device processes along, which a `Fleet` can
bear. Threat: a program that may join a Ray cluster may run anything on its machines. Where control
groups do not bound a candidate, Ray's own guard of a machine's memory may end the relay for it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Any

from cudal1.errors import ConfigError, DeviceError
from cudal1.harness.cluster.relay import Answer, Find, Relay
from cudal1.harness.device.device import Device, find_devices
from cudal1.harness.schedule.device_processes import DeviceProcess, MachineLost
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION
from cudal1.settings import extras

ANSWER_LIMIT_S = 120.0
"""Seconds in which a machine has to start a relay, which imports PyTorch, and say what devices it
has."""
CLOSE_LIMIT_S = 30.0
CALL_LIMIT_S = 10.0
"""Seconds in which the cluster's head has to answer; Ray would wait for minutes."""
AT_A_TIME = 64
"""Number of questions that a relay may have open: a few for each device."""
BUILDS, BUILDS_AT_A_TIME = "builds", 128
"""Group of the questions about builds, apart from the others, and how many of them may be open:
some for each of a builder's workers."""
MAX_SAID = 300
"""Characters of what Ray says."""


@contextmanager
def processes_on_cluster(
    address: str, device_class: DeviceClass, *, find: Find = find_devices
) -> Iterator[tuple[list[DeviceProcess], list[str]]]:
    """Yield the device processes of a cluster, and a line on each machine that has none.

    Run it on one of the cluster's machines; each needs cudal1 with the same harness.

    Args:
        address: of the cluster's head, as `host:port`; `auto` for the one that runs here.
        device_class: the class of the devices.
        find: finds the devices of a machine; run on each machine.

    Raises:
        ConfigError: Ray is not installed.
        DeviceError: no cluster answers, or none of its machines has such a device.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--cluster {extras.remedy('ray')}") from error
    with ExitStack() as opening:
        opening.callback(ray.shutdown)
        # else a machine's last words go where verdicts are printed
        opening.enter_context(redirect_stdout(opening.enter_context(open(os.devnull, "w"))))
        _join(address)
        relays, left_out = _relays(device_class, find)
        opening.push(lambda kind, *_: _close(list(relays.values()), politely=kind is None))
        device_processes = _seated(relays, left_out)
        if not device_processes:
            said = "; ".join(left_out) or "it has no machines"
            raise DeviceError(f"--cluster {address}: no device to judge on: {said}")
        yield device_processes, left_out


class Relayed(Executor):
    """The process of one device, by way of its machine's relay."""

    def __init__(self, relay: Any, device_id: str) -> None:
        self.relay = relay
        self._device_id = device_id
        self._num_asked = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Ask a question; the future raises `BrokenExecutor` if process or machine are lost."""
        assert not kwargs, "positional arguments are relayed"
        found: Future[Any] = Future()
        found.set_running_or_notify_cancel()  # the machine has the question
        number, self._num_asked = self._num_asked, self._num_asked + 1
        with from_ray():
            asked = self.relay.run.remote(self._device_id, number, fn, args).future()
        asked.add_done_callback(lambda done: _pass_on(done, found))
        return found


def _pass_on(done: Future[Answer], found: Future[Any]) -> None:
    from ray.exceptions import RayTaskError

    error = done.exception()
    if error is None:
        answer = done.result()
        error = BrokenExecutor("its process has died") if answer.is_lost else answer.error
        if error is None:
            found.set_result(answer.value)
            return
    elif not isinstance(error, RayTaskError):  # which is a mistake of ours
        error = MachineLost(_one_line(error))
    found.set_exception(error)


@contextmanager
def from_ray() -> Iterator[None]:
    """Raise Ray's bare exceptions as `MachineLost`.

    Ray raises a bare `Exception` once a machine, or the cluster's head, is gone.

    Raises:
        MachineLost: Ray has raised an exception.
    """
    try:
        yield
    except Exception as error:  # nothing narrower: it is that very class
        raise MachineLost(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:MAX_SAID]


def _join(address: str) -> None:
    """Connect to the cluster.

    Raises:
        DeviceError: there is no cluster that this process can be a part of.
    """
    import ray

    try:
        if address != "auto":
            _call(address)
        with from_ray():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, ValueError, MachineLost) as error:
        raise DeviceError(
            f"--cluster {address}: no Ray cluster answers ({_one_line(error)}); start one with "
            "ray start --head, and run this on one of its machines, with the same Ray and Python"
        ) from error


def _call(address: str) -> None:
    """Check that a process listens at an address.

    Raises:
        OSError: no process does.
        ValueError: it is no address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("not host:port or auto")
    socket.create_connection((host, int(port)), timeout=CALL_LIMIT_S).close()


def _relays(device_class: DeviceClass, find: Find) -> tuple[dict[str, Any], list[str]]:
    """Return the relays by machine, and a line on each machine that can have none.

    A relay is an actor. Where it is about GPUs, it has all GPUs of its machine, and no other
    program of the cluster gets one.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor: Any = ray.remote  # its types know it without settings of this kind only
    remote = actor(concurrency_groups={BUILDS: BUILDS_AT_A_TIME})(Relay)
    relays: dict[str, Any] = {}
    left_out: list[str] = []
    for node in ray.nodes():
        machine = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        num_gpus = node["Resources"].get("GPU", 0) if device_class is DeviceClass.CUDA else 0
        if not node["Alive"]:
            continue
        if device_class is DeviceClass.CUDA and not num_gpus:
            left_out.append(f"{machine}: Ray was given no GPU there")
            continue
        relays[machine] = remote.options(
            num_cpus=0,
            num_gpus=num_gpus,
            max_concurrency=AT_A_TIME,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(device_class, find)
    return relays, left_out


def _seated(relays: dict[str, Any], left_out: list[str]) -> list[DeviceProcess]:
    """Return the device processes of all machines.

    A machine without any leaves `relays`, and has a line in `left_out`.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    asked = {machine: relay.devices.remote() for machine, relay in relays.items()}
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_LIMIT_S)
    device_processes: dict[str, DeviceProcess] = {}
    for machine, answer in asked.items():
        devices: list[Device] = []
        try:
            version, devices, why = ray.get(answer, timeout=0)
            if version != HARNESS_VERSION:
                why = f"its harness is version {version}, here it is {HARNESS_VERSION}"
            elif devices and all(device.id in device_processes for device in devices):
                why = f"its devices are those of {device_processes[devices[0].id].machine}"
        except GetTimeoutError:
            why = "no answer; others in the cluster may have its GPUs"
        except RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
            why = f"{lines[-1].strip()}; is this version of cudal1 installed there?"
        if why:
            left_out.append(f"{machine}: {why}")
            ray.kill(relays.pop(machine))
            continue
        for device in devices:
            device_processes.setdefault(
                device.id,
                DeviceProcess(device, Relayed(relays[machine], device.id), machine=machine),
            )
    return list(device_processes.values())


def _close(relays: list[Any], *, politely: bool) -> None:
    """End the relays and their processes; unless `politely`, whatever they are at."""
    import ray

    with suppress(MachineLost), from_ray():
        closing = [relay.close.remote() for relay in relays if politely]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)
        for relay in relays:
            ray.kill(relay)
