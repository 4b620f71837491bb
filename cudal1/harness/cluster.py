"""Seats on every machine of a Ray cluster.

A relay on each machine keeps the processes that judge on its devices, as `seats_here` does, and
passes on what they are asked. They are no actors of Ray's: those would see one GPU each and take
the same core. A machine that leaves takes its seats along, which is what a `Fleet` can bear.
Threat: none new for candidates; but who may join a Ray cluster may run anything on its machines.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from cudal1.errors import ConfigError, CudaL1Error, DeviceError
from cudal1.harness.device import Device, find_devices
from cudal1.harness.seats import Seat, judge_process
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION

ANSWER_LIMIT_S = 120.0
"""For a machine to start a relay, which imports PyTorch, and say what devices it has."""
CLOSE_LIMIT_S = 30.0
CALL_LIMIT_S = 10.0
"""For the cluster's head to answer; Ray would wait for minutes."""
AT_A_TIME = 64
"""Questions that a relay may have open: a few for each device."""

Find = Callable[[DeviceClass], list[Device]]


@contextmanager
def seats_on_cluster(
    address: str, device_class: DeviceClass, *, find: Find = find_devices
) -> Iterator[tuple[list[Seat], list[str]]]:
    """One for each device of that class in the cluster, and a line on each machine without.

    Run it on one of the cluster's machines; each needs cudal1 with the same harness.

    Args:
        address: of the cluster's head, as `host:port`; `auto` for the one that runs here.
        device_class: which devices.
        find: run on each machine; finds its devices.

    Raises:
        ConfigError: Ray is not installed.
        DeviceError: no cluster answers, or none of its machines has such a device.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--cluster: needs Ray; pip install 'cudal1[cluster]'") from error
    with ExitStack() as opening:
        try:
            if address != "auto":
                _call(address)
            opening.callback(ray.shutdown)
            # a machine's last words would go where verdicts are printed
            opening.enter_context(redirect_stdout(opening.enter_context(open(os.devnull, "w"))))
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except (OSError, RuntimeError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise DeviceError(
                f"--cluster {address}: no Ray cluster answers ({said}); "
                "start one with ray start --head"
            ) from error
        relays = {
            f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})": _relay(node, device_class, find)
            for node in ray.nodes()
            if node["Alive"]
        }
        seats, left_out = _seated(relays)
        if not seats:
            said = "; ".join(left_out) or "it has no machines"
            raise DeviceError(f"--cluster {address}: no device to judge on: {said}")
        opening.callback(_close, list(relays.values()))
        yield seats, left_out


class Relay:
    """On a machine of the cluster: the processes that judge on its devices."""

    def __init__(self, device_class: DeviceClass, find: Find) -> None:
        self._device_class = device_class
        self._find = find
        self._processes: dict[str, Executor] = {}

    def devices(self) -> tuple[str, list[Device], str]:
        """The harness's version, this machine's devices, and why there are none."""
        try:
            devices = self._find(self._device_class)
        except DeviceError as error:
            return HARNESS_VERSION, [], str(error)
        self._processes = {device.id: judge_process() for device in devices}
        return HARNESS_VERSION, devices, ""

    def run(self, device_id: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Answer:
        """What the process of one device answers."""
        try:
            return Answer(self._processes[device_id].submit(function, *args).result())
        except BrokenExecutor:
            return Answer(is_lost=True)
        except CudaL1Error as error:
            return Answer(error=error)

    def close(self) -> None:
        """End them once they have done what they were asked."""
        for process in self._processes.values():
            process.shutdown()


@dataclass(frozen=True)
class Answer:
    """What a question to a relay comes back as; Ray would wrap errors in text of its own."""

    value: Any = None
    error: CudaL1Error | None = None
    is_lost: bool = False


class Relayed(Executor):
    """The process of one device, by way of its machine's relay."""

    def __init__(self, relay: Any, device_id: str) -> None:
        self._relay = relay
        self._device_id = device_id
        self._waiting = ThreadPoolExecutor(max_workers=AT_A_TIME)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Ask; the future raises `BrokenExecutor` if process or machine are lost."""
        assert not kwargs, "positional arguments are relayed"
        found: Future[Any] = Future()
        found.set_running_or_notify_cancel()  # the machine has it
        asked = self._waiting.submit(self._answer, fn, args)
        asked.add_done_callback(lambda done: _pass_on(done, found))
        return found

    def _answer(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Answer:
        import ray

        return ray.get(self._relay.run.remote(self._device_id, function, args))


def _pass_on(done: Future[Answer], found: Future[Any]) -> None:
    from ray.exceptions import RayTaskError

    error = done.exception()
    if error is None:
        answer = done.result()
        error = BrokenExecutor("its process has died") if answer.is_lost else answer.error
        if error is None:
            found.set_result(answer.value)
            return
    elif not isinstance(error, RayTaskError):  # of an actor, the head, or the way there
        error = BrokenExecutor("its machine is gone")
    found.set_exception(error)


def _call(address: str) -> None:
    """Whether anybody listens there.

    Raises:
        OSError: nobody does.
        ValueError: that is no address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("not host:port or auto")
    socket.create_connection((host, int(port)), timeout=CALL_LIMIT_S).close()


def _relay(node: dict[str, Any], device_class: DeviceClass, find: Find) -> Any:
    """An actor that has all of a machine's GPUs, if it is about GPUs: nobody else gets one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    is_cuda = device_class is DeviceClass.CUDA
    remote: Any = ray.remote(Relay)
    return remote.options(
        num_cpus=0, num_gpus=node["Resources"].get("GPU", 0) if is_cuda else 0,
        max_concurrency=AT_A_TIME, max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
    ).remote(device_class, find)  # fmt: skip


def _seated(relays: dict[str, Any]) -> tuple[list[Seat], list[str]]:
    """The seats of all machines, and why some have none."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    asked = {machine: relay.devices.remote() for machine, relay in relays.items()}
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_LIMIT_S)
    seats: dict[str, Seat] = {}
    left_out: list[str] = []
    for machine, answer in asked.items():
        try:
            version, devices, why = ray.get(answer, timeout=0)
        except GetTimeoutError:
            left_out.append(f"{machine}: no answer; others in the cluster may have its GPUs")
            continue
        except RayError as error:
            said = str(error).strip().rpartition("\n")[2]
            left_out.append(f"{machine}: {said}; install cudal1 there")
            continue
        if version != HARNESS_VERSION:
            why = f"its harness is version {version}, here it is {HARNESS_VERSION}"
        if why:
            left_out.append(f"{machine}: {why}")
            continue
        for device in devices:  # two nodes of one machine share its devices
            seats.setdefault(
                device.id, Seat(device, Relayed(relays[machine], device.id), machine=machine)
            )
    return list(seats.values()), left_out


def _close(relays: list[Any]) -> None:
    import ray

    closing = [relay.close.remote() for relay in relays]
    ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)
