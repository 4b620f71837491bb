"""Runs a server for as long as its owner lives: `python guard.py COMMAND…`, as a session leader.

Standard input ends when the owner closes it, dies or is killed, whichever way. Then the server is
told to stop; whoever of its session is left after a while is killed, also when the server has ended
by itself. Nothing of cudal1 is imported: it starts at once and takes next to no memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 10.0
"""For the server to end in peace: it has shared memory and temporary files to remove."""
REST_S = 0.5
"""For those that it leaves behind; Python's resource tracker works just then."""


def main() -> None:
    """Start the command, and end with it; this process is killed with the rest."""
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
