"""Keep the processes that fork a device's workers: one without compilers, and one with them.

Importing what compiles inside a worker takes most of such a process's start, so the second one
starts once a source names a compiler.
"""

from __future__ import annotations

from cudal1.errors import WorkerError
from cudal1.harness.device.device import Device
from cudal1.harness.sandbox.launch import Lent, Source, Start, launch


class Zygotes:
    """The processes that fork a device's workers.

    Args:
        device: what workers may use.
        start: starts the process without compilers.
    """

    def __init__(self, device: Device, start: Start) -> None:
        self._device = device
        self._start = start
        self._sources: dict[bool, Source | Lent] = {}
        """Processes by whether they have compilers."""

    def __contains__(self, source: object) -> bool:
        return source in self._sources.values()

    def source(self, *, compilers: bool) -> Source | Lent:
        """Return a process, started if need be.

        Where one with compilers does not start, one without takes its place: then each worker
        imports them.

        Raises:
            WorkerError: the process without compilers does not start.
        """
        if compilers and True not in self._sources:
            try:
                self._sources[True] = launch(self._device, compilers=True)
            except WorkerError:
                self._sources[True] = self.source(compilers=False)
        if not compilers and False not in self._sources:
            self._sources[False] = self._start(self._device)
        return self._sources[compilers]

    def ended(self) -> list[Source | Lent]:
        """Return the processes that have ended, and forget them."""
        gone = {which: each for which, each in self._sources.items() if not each.is_running()}
        for which, source in gone.items():
            del self._sources[which]
            source.close()
        return list(gone.values())

    def close(self) -> None:
        """End the processes."""
        for source in set(self._sources.values()):
            source.close()
        self._sources.clear()
