"""Give up the files of an extension once one of them does not compile.

ninja waits for files that are being compiled after another one has failed, though the extension is
lost then. A file for a GPU may take minutes more: it is compiled with fewer headers, then as it was
asked for. Threat: none but what a candidate's own processes can do anyway.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from .steps import after  # relative: the package has two names (`__main__`)

NINJA = "ninja"
"""The name of the process that has all files of an extension compiled."""
GIVEN_UP = "left out: another file of the extension does not compile\n"
"""The message on a file that is given up."""


class Siblings:
    """The files that one ninja has compiled into a folder; one of them is this process's.

    Args:
        failed: the file that says that one of them does not compile. Its name has ninja's number
            and when that ninja began, so it says nothing of a later one.
    """

    look_s = 0.1
    """Seconds between two looks for that file."""

    def __init__(self, failed: Path) -> None:
        self._failed = failed
        self._is_over = False
        """True once this process's file is known not to compile."""

    @classmethod
    def of(cls, arguments: list[str]) -> Siblings | None:
        """Return the siblings of a file that a command compiles, or None for any other command.

        A command in ninja's own process group (one that has the console) has none: it cannot be
        ended without ninja.
        """
        output = after("-o", arguments)
        if "-c" not in arguments or not output:
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = os.getppid()
            for _ in range(2):  # a shell is between, or none
                name, parent, began = _seen(process)
                if name == NINJA:
                    if os.getpgid(process) == os.getpgrp():
                        return None
                    return cls(Path(output).absolute().parent / f".failed-{process}-{began}")
                process = parent
        return None

    def fail(self) -> None:
        """Say that this process's file does not compile."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._failed.touch()

    def watch(self) -> None:
        """Have this process end, with all that it started, once another file does not compile."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._failed.exists():
            time.sleep(self.look_s)
        if self._is_over:
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(GIVEN_UP)
            sys.stderr.flush()
        # ninja gives each command a group. The kernel ends a group as a whole, with what is just
        # being started; ninja would wait for that one's output.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _seen(process: int) -> tuple[str, int, int]:
    """Return a process's name, its parent's number and the clock tick at which it began.

    Raises:
        OSError, ValueError, IndexError: there is no such process, or it cannot be seen.
    """
    before, _, behind = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    fields = behind.split()
    return before.partition("(")[2], int(fields[1]), int(fields[19])
