"""Make a folder that is removed when the process that made it ends, however it ends.

A killed process removes nothing. So a shell waits for the end of a pipe, and then removes the
folder. The owner has the only other end of that pipe.
"""

from __future__ import annotations

import os
import subprocess
import tempfile

from cudal1 import processes

JANITOR = 'read -r _; exec rm -rf -- "$0"'
"""Shell command: wait until standard input ends, then remove a folder."""


class Scratch:
    """A new folder in the folder for temporary files.

    Args:
        prefix: the beginning of the folder's name.
    """

    def __init__(self, prefix: str) -> None:
        self.path = tempfile.mkdtemp(prefix=prefix)
        waiting, self._life = os.pipe()
        try:
            self._janitor = subprocess.Popen(
                ["/bin/sh", "-c", JANITOR, self.path],
                env=processes.sparse(),
                cwd="/",
                stdin=waiting,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach the shell
            )
        finally:
            os.close(waiting)
        self._is_open = True

    def close(self) -> None:
        """Remove the folder; idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self._life)
            self._janitor.wait()
