"""The one way to start processes: isolated interpreters with a listed environment.

Threat: a process that trusts its surroundings runs any code that lies there. Python puts the
working directory and PYTHONPATH before its own library, so that a file called `statistics.py`
beside a judged one replaces a module of the judge. Libraries read variables, and files of the
folder that they are started in. So every interpreter of ours starts with `-I` (no working
directory, no user site, no PYTHON* variable). The variables that it inherits are listed here, each
with the reason.

Our own packages are found in the checkout of the process that starts another (`start.py`).

This module imports only what every interpreter imports at its start: it runs before an interpreter
is known to be isolated.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the flag of that name in `typing` would import the module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")  # noqa: PTH100, PTH118, PTH120 (pathlib imports a lot)
"""The program that runs a module of this checkout."""
ROOT = os.path.dirname(os.path.dirname(START))  # noqa: PTH120 (as above)
"""The folder of this checkout, or of the packages where cudal1 was installed without one."""

FLAGS = ("-I", "-X", "utf8")
"""Options of every interpreter of ours. `-X utf8` makes text UTF-8 whatever the locale says."""

KEPT = {
    "PATH": "programs that are started by name",
    "HOME": "caches, and settings of git and DVC that are the user's own",
    "USER": "the author of a run",
    "LOGNAME": "the same",
    "TMPDIR": "where there is room for temporary files",
    "TZ": "times are shown in it",
    "TERM": "how a terminal is written to",
    "COLORTERM": "the same",
    "NO_COLOR": "the same",
    "COLUMNS": "the width of a terminal",
    "LINES": "its height",
    "XDG_CACHE_HOME": "where the user wants caches",
    "XDG_CONFIG_HOME": "settings of git and DVC",
    "XDG_DATA_HOME": "the same",
    "XDG_RUNTIME_DIR": "the same",
    "VIRTUAL_ENV": "tools that look for the interpreter's environment",
    "LD_LIBRARY_PATH": "where a machine has its GPU driver and CUDA",
    "CUDA_HOME": "the CUDA toolkit",
    "CUDA_PATH": "the same",
    "CUDA_VISIBLE_DEVICES": "the GPUs that the user grants",
    "CUDA_DEVICE_ORDER": "their order",
    "NVIDIA_VISIBLE_DEVICES": "the same in containers",
    "OPENBLAS_CORETYPE": "older OpenBLAS computes wrong results on some processors without it",
    "OPENBLAS_L2_SIZE": "the same",
    "SSL_CERT_FILE": "certificates of the user's network",
    "SSL_CERT_DIR": "the same",
    "REQUESTS_CA_BUNDLE": "the same",
}
"""Variables that any process of ours may inherit, each with the reason."""

SET = {
    "LANG": "C.UTF-8",
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Variables that every process is given.

LANG is for text that libraries decode. PYTHONSAFEPATH and PYTHONNOUSERSITE are for interpreters
that libraries start, which have no `-I`. The rest forbids libraries to report to their makers."""

STEERING = {
    "PYTHON": "what an interpreter imports and how it begins",
    "LC_": "how text is encoded, numbers and messages written",
    "LANGUAGE": "the same",
    "PREFECT_": "a server, a profile, a folder of somebody else's Prefect",
    "MLFLOW_": "a store, a run, a user of somebody else's MLflow",
    "DVC_": "the root, stage or settings of another DVC",
    "GIT_": "another repository",
    "TORCH": "how PyTorch and its compiler work",
    "PYTORCH_": "the same",
    "TRITON_": "how Triton compiles",
    "INDUCTOR_": "how PyTorch compiles",
    "OMP_": "threads",
    "MKL_": "threads",
    "GOMP_": "threads",
    "KMP_": "threads",
    "ACCELERATE_": "how training is spread over GPUs",
    "TRL_": "how TRL works",
    "TRANSFORMERS_": "where transformers looks, what it says",
    "TOKENIZERS_": "threads",
    "POLARS_": "how polars works",
    "DUCKDB_": "how DuckDB works",
    "PYDANTIC_": "plugins",
    "OTEL_": "where telemetry goes",
    "SQLALCHEMY_": "how SQLAlchemy works",
    "UVICORN_": "how servers listen",
    "GUNICORN_": "the same",
    "WEB_CONCURRENCY": "the same",
    "FLASK_": "the same",
    "FORWARDED_ALLOW_IPS": "proxies that servers believe",
    "PYTEST_": "how tests run",
    "COVERAGE_": "code that runs when an interpreter starts",
    "LD_PRELOAD": "code that runs in every process",
    "LD_AUDIT": "the same",
    "BASH_ENV": "code that runs in every shell",
    "ENV": "the same",
}
"""Prefixes of variables that steer the libraries of our processes; main programs drop them."""

LOOPBACK = "localhost,127.0.0.1,::1"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in an isolated interpreter.

    Our packages are found in this checkout, all others where they are installed.
    """
    return [sys.executable, *FLAGS, START, module, *arguments]


def sparse(**ours: str) -> dict[str, str]:
    """Return the environment of a process that needs no key and no network.

    It holds the variables that `KEPT` lists, those of `SET`, and `ours`; later ones win.
    """
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, **SET, **ours}


def inherited(**ours: str) -> dict[str, str]:
    """Return the environment of a process that may need keys, whatever their names are.

    It holds all variables but those that steer libraries (`STEERING`). Proxies stay, but not for
    this machine's own servers.
    """
    return {**unsteered(os.environ), **SET, **ours}


def unsteered(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer no library; this machine is excepted from proxies."""
    kept = {
        name: value for name, value in environment.items() if not name.startswith(tuple(STEERING))
    }
    if any(name.upper() in PROXIES for name in kept):
        # a library looks at one spelling, at the other, or at the first that it finds
        direct = ",".join(filter(None, (kept.get("no_proxy") or kept.get("NO_PROXY"), LOOPBACK)))
        named = dict.fromkeys(filter(None, (host.strip() for host in direct.split(","))))
        kept["NO_PROXY"] = kept["no_proxy"] = ",".join(named)
    return kept


def is_proxy(name: str) -> bool:
    """Return whether a variable names a proxy, in either spelling."""
    return name.upper() in PROXIES


def isolate(package: str) -> bool:
    """Start the main program again, isolated, if it was started as `python -m PACKAGE`.

    It is the first statement of a package that is a program or has modules that are. In an
    interpreter that is isolated already, it cleans the environment.

    Returns:
        Whether the main program is the package or a module of it.
    """
    program = main_program(sys.orig_argv)
    if program is None or not f"{program[0]}.".startswith(f"{package}."):
        return False
    module, arguments = program
    if not (sys.flags.isolated and sys.flags.utf8_mode):
        _become(python(module, *arguments))
    clean = {**unsteered(os.environ), **SET}
    for name in set(os.environ) - set(clean):
        del os.environ[name]
    os.environ.update(clean)
    return True


def main_program(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the module that an interpreter was told to run, and its arguments; otherwise None.

    The module is named by `-m` or behind `start.py`.
    """
    words = list(command[1:])
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            is_ours = os.path.realpath(word) == os.path.realpath(START)
            return (words[0], words[1:]) if is_ours and words else None
        if word.startswith("--"):
            del words[: word == "--check-hash-based-pycs"]
            continue
        for at, letter in enumerate(word[1:], start=2):
            if letter in "cmWX":  # the rest of the word is its value, or the next word
                value = word[at:] or (words.pop(0) if words else "")
                if letter in "cm":
                    return (value, words) if letter == "m" else None
                break
    return None


def _become(command: list[str]) -> NoReturn:
    os.execve(command[0], command, {**unsteered(os.environ), **SET})
