"""Runs a server for as long as its owner lives: `python guard.py COMMAND…`, as a session leader.

Standard input ends when the owner closes it, dies or is killed. Then the server is told to stop.
Processes of its session that are left after `GRACE_S` are killed, also when the server has ended by
itself. Nothing of cudal1 is imported, so the guard starts at once and takes next to no memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 10.0
"""Seconds in which the server may end by itself: it removes shared memory and temporary files."""
REST_S = 0.5
"""Seconds that the server's child processes get after its end; Python's resource tracker works
then."""


def main() -> None:
    """Start the command and wait for its end; then kill the session, this process included."""
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_stop_when_disowned, args=(server,), daemon=True).start()
    status = server.wait()
    if status < 0:
        print(f"killed by {signal.Signals(-status).name}", flush=True)
    time.sleep(REST_S)
    os.killpg(0, signal.SIGKILL)


def _stop_when_disowned(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read(1)
    server.terminate()
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
