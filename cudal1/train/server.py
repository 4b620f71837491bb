"""The vLLM server that samples for the trainer, seen from the stage: is it there at all?

TRL asks it for answers and sends it the weights over NCCL; for that, vLLM must be installed where
the trainer runs, too. It is, in the server's own environment (`make vllm`): training runs there.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from cudal1.errors import ConfigError, TrainingError

VLLM_PYTHON = Path(".venv-vllm") / "bin" / "python"
"""Made by `make vllm`, in the project's folder."""
_PATIENCE_S = 10.0


def refuse_unreachable(server: str) -> None:
    """Nothing, when a vLLM server answers that can be sent weights.

    Raises:
        TrainingError: it does not answer, or was started without what sending weights needs.
    """
    remedy = "start it as docs/training.md says, or set rl.vllm_server to null"
    for path, what in (
        ("/health", "does not answer"),
        ("/server_info?config_format=json", "takes no weights (VLLM_SERVER_DEV_MODE is not set)"),
    ):
        try:
            with urllib.request.urlopen(server.rstrip("/") + path, timeout=_PATIENCE_S):
                pass
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise TrainingError(f"rl.vllm_server: {server} {what} ({reason}); {remedy}") from error


def vllm_python() -> str:
    """The interpreter that has vLLM.

    Raises:
        ConfigError: there is none.
    """
    if not os.access(VLLM_PYTHON, os.X_OK):
        raise ConfigError(
            f"rl.vllm_server: no {VLLM_PYTHON}; run `make vllm`, or set rl.vllm_server to null"
        )
    return str(VLLM_PYTHON)
