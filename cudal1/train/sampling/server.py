"""Check, for the stage, the vLLM server that samples for the trainer.

TRL asks the server for answers and sends it the weights over NCCL. For that, vLLM must be installed
where the trainer runs, too. So training runs in the server's own environment (`make vllm`).
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from cudal1.errors import ConfigError, TrainingError

VLLM_PYTHON = Path(".venv-vllm") / "bin" / "python"
"""The interpreter in the environment that `make vllm` makes in the project's folder."""
_PATIENCE_S = 10.0


def refuse_unreachable(server: str) -> None:
    """Refuse a vLLM server that does not answer, or that cannot be sent weights.

    Raises:
        TrainingError: it does not answer, or was started without what sending weights needs.
    """
    remedy = "start it as docs/training/how-to.md says, or set rl.vllm_server to null"
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
    """Return the interpreter that has vLLM.

    Raises:
        ConfigError: there is none.
    """
    if not os.access(VLLM_PYTHON, os.X_OK):
        raise ConfigError(
            f"rl.vllm_server: no {VLLM_PYTHON}; run `make vllm`, or set rl.vllm_server to null"
        )
    return str(VLLM_PYTHON)
