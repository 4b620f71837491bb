"""Make the environment that tests run in, without variables of the user that steer the tested code.

Developers have proxies, a locale, a terminal, folders for modules and stores of their own. Tests of
the product's reaction to these set them themselves.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cudal1.processes import unsteered

ROOT = Path(__file__).parents[1]
SHOWN = (
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "TTY_COMPATIBLE",
)
"""Variables that change printed output."""
GIVEN = {
    "LANG": "C.UTF-8",
    # small models on a shared CPU: threads that wait must sleep, not spin
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


def cleaned(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the environment of test processes, which may write to the folder `scratch`."""
    kept = {name: value for name, value in unsteered(environment).items() if name not in SHOWN}
    of_the_runner = {name: each for name, each in environment.items() if name.startswith("PYTEST_")}
    home = environment.get("HOME", "")
    ours = str(Path(sys.executable).parent)
    others = [
        each for each in environment.get("PATH", os.defpath).split(os.pathsep) if each != ours
    ]
    return {
        **kept,
        **of_the_runner,
        **GIVEN,
        "PATH": os.pathsep.join([ours, *others]),
        "PREFECT_HOME": str(scratch / "prefect"),
        # packages that the user has compiled, and the user's settings of DVC, are no part of a test
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "TMPDIR": str(scratch),
        "HOME": home if _can_be_written(home) else str(scratch),
    }


def _can_be_written(folder: str) -> bool:
    if not folder:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def enter(scratch: Path) -> None:
    """Put this process and the processes that it starts into these surroundings."""
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = {str(Path(each).absolute()) for each in found if each} - {str(ROOT)}
    sys.path[:] = [
        each for each in sys.path if not each or str(Path(each).absolute()) not in others
    ]
    clean = cleaned(os.environ, scratch)
    for name in set(os.environ) - set(clean):
        del os.environ[name]
    os.environ.update(clean)
    tempfile.tempdir = str(scratch)
