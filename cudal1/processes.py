"""The one way to start processes: isolated interpreters with a listed environment.

Threat: a process that trusts its surroundings runs the code of whoever wrote them. Python puts the
working directory and PYTHONPATH before its own library, so that a file called `statistics.py`
beside a judged one replaces a module of the judge; libraries read variables and files of the
folder they are started in. So every interpreter of ours starts with `-I` (no working directory, no
user site, no PYTHON* variable), and what it inherits is listed here, with the reason.

Only what every interpreter has imported anyway is imported here: this runs before an interpreter is
known to be isolated.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

FLAGS = ("-I", "-X", "utf8")
"""Of every interpreter of ours. The second makes text UTF-8 whatever the locale says."""

KEPT = {
    "PATH": "programs that are started by name",
    "HOME": "caches, and settings of git and DVC that are the user's own",
    "USER": "the author of a run", "LOGNAME": "the same",
    "TMPDIR": "where there is room for temporary files",
    "TZ": "times are shown in it",
    "TERM": "how a terminal is written to", "COLORTERM": "the same", "NO_COLOR": "the same",
    "COLUMNS": "the width of a terminal", "LINES": "its height",
    "XDG_CACHE_HOME": "where the user wants caches", "XDG_CONFIG_HOME": "settings of git and DVC",
    "XDG_DATA_HOME": "the same", "XDG_RUNTIME_DIR": "the same",
    "VIRTUAL_ENV": "tools that look for the interpreter's environment",
    "LD_LIBRARY_PATH": "where a machine has its GPU driver and CUDA",
    "CUDA_HOME": "the CUDA toolkit", "CUDA_PATH": "the same",
    "CUDA_VISIBLE_DEVICES": "the GPUs that the user grants", "CUDA_DEVICE_ORDER": "their order",
    "NVIDIA_VISIBLE_DEVICES": "the same in containers",
    "OPENBLAS_CORETYPE": "older OpenBLAS computes wrong results on some processors without it",
    "OPENBLAS_L2_SIZE": "the same",
    "SSL_CERT_FILE": "certificates of the user's network", "SSL_CERT_DIR": "the same",
    "REQUESTS_CA_BUNDLE": "the same",
}  # fmt: skip
"""Variables that any process of ours may inherit, each with the reason."""

SET = {
    "LANG": "C.UTF-8",
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
}
"""What every process is given: for interpreters that libraries start, which have no `-I`."""

STEERING = {
    "PYTHON": "what an interpreter imports and how it begins",
    "LC_": "how text is encoded, numbers and messages written", "LANGUAGE": "the same",
    "PREFECT_": "a server, a profile, a folder of somebody else's Prefect",
    "MLFLOW_": "a store, a run, a user of somebody else's MLflow",
    "DVC_": "the root, stage or settings of another DVC", "GIT_": "another repository",
    "TORCH": "how PyTorch and its compiler work", "PYTORCH_": "the same",
    "TRITON_": "how Triton compiles", "INDUCTOR_": "how PyTorch compiles",
    "OMP_": "threads", "MKL_": "threads", "GOMP_": "threads", "KMP_": "threads",
    "ACCELERATE_": "how training is spread over GPUs", "TRL_": "how TRL works",
    "TRANSFORMERS_": "where transformers looks, what it says", "TOKENIZERS_": "threads",
    "POLARS_": "how polars works", "DUCKDB_": "how DuckDB works", "PYDANTIC_": "plugins",
    "OTEL_": "where telemetry goes", "SQLALCHEMY_": "how SQLAlchemy works",
    "UVICORN_": "how servers listen", "GUNICORN_": "the same", "WEB_CONCURRENCY": "the same",
    "FLASK_": "the same", "FORWARDED_ALLOW_IPS": "whose headers servers believe",
    "PYTEST_": "how tests run", "COVERAGE_": "code that runs when an interpreter starts",
    "LD_PRELOAD": "code that runs in every process", "LD_AUDIT": "the same",
    "BASH_ENV": "code that runs in every shell", "ENV": "the same",
}  # fmt: skip
"""Prefixes of variables that steer what our processes run on; main programs drop them."""

LOOPBACK = "localhost,127.0.0.1,::1"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours in an isolated interpreter.

    The interpreter finds `cudal1` where it is installed, editable or not, and nowhere else.
    """
    return [sys.executable, *FLAGS, "-m", module, *arguments]


def sparse(**ours: str) -> dict[str, str]:
    """Return the environment of a process that needs no key and no network.

    It holds what `KEPT` lists, what `SET` sets, and `ours`, which win.
    """
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, **SET, **ours}


def inherited(**ours: str) -> dict[str, str]:
    """Return the environment of a process that may need keys, whatever their names are.

    It holds all variables but those that steer (`STEERING`). Proxies stay, but not for this
    machine's own servers.
    """
    return {**unsteered(os.environ), **SET, **ours}


def unsteered(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer nothing; proxies are never asked for this machine."""
    kept = {
        name: value for name, value in environment.items() if not name.startswith(tuple(STEERING))
    }
    if any(name.upper() in PROXIES for name in kept):
        for name in ("NO_PROXY", "no_proxy"):
            kept[name] = ",".join(filter(None, (kept.get(name), LOOPBACK)))
    return kept


def isolate(package: str) -> None:
    """Start the main program again, isolated, if it was started as `python -m PACKAGE`.

    The first statement of a package that is a program, or whose modules are. An interpreter that is
    isolated already has its environment cleaned and goes on.
    """
    module = _main_module(sys.orig_argv)
    if module is None or not f"{module}.".startswith(f"{package}."):
        return
    if not sys.flags.isolated:
        arguments = sys.orig_argv[sys.orig_argv.index(module) + 1 :]
        _become(python(module, *arguments))
    clean = {**unsteered(os.environ), **SET}
    for name in set(os.environ) - set(clean):
        del os.environ[name]
    os.environ.update(clean)


def _main_module(command: Sequence[str]) -> str | None:
    """What stands behind `-m` among the interpreter's own options."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, None)
        if word in ("-X", "-W"):
            next(words, None)
        elif not word.startswith("-") or word == "-c":
            return None
    return None


def _become(command: list[str]) -> NoReturn:
    os.execve(command[0], command, {**unsteered(os.environ), **SET})
