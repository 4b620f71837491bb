"""Run a flow that a person starts at a terminal: with its own server, its failure in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cudal1.errors import CudaL1Error
from tasks.server.prefect_home import start_server


def finished(flow: Callable[..., Any], *arguments: object) -> Any:
    """Return the state of a flow that has completed.

    End the program with code 1 when a stage failed, and 2 when Prefect cannot be started.
    """
    try:
        start_server()
    except CudaL1Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    state = flow(*arguments, return_state=True)
    if not state.is_completed():
        print(f"\nstopped: {state.message}", file=sys.stderr)
        sys.exit(1)
    return state
