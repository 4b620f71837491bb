"""The processes of a training group: what they are given of the environment, and that all end.

Threat: whatever training imports reads its environment, and crash reports and logs show it. Keys of
providers are not training's business, and their names are free (`api_key_env`), so that nobody
could list what to leave out: listed is what training needs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import psutil

from cudal1.processes import SET

MEMBER = "CUDAL1_TRAINING_MEMBER"
"""In the environment of a group's processes, and of all that these start: which group it is."""
PASSED = frozenset(
    """PATH HOME USER LOGNAME SHELL TMPDIR TZ CC CXX CUDACXX CPATH LIBRARY_PATH LD_LIBRARY_PATH
    """.split()
)  # fmt: skip
PASSED_PREFIXES = tuple(
    """ACCELERATE_ CUDA_ FI_ GLIBC_ GLOO_ GOMP_ HF_ KMP_ MALLOC_ MKL_ NCCL_ NVIDIA_ NVSHMEM_
    OMP_ OPENBLAS_ PYTORCH_ SAFETENSORS_ TOKENIZERS_ TORCH TRANSFORMERS_ TRITON_ TRL_ UCX_
    VLLM_ XDG_""".split()
)
"""Of torch, the libraries around it, and what joins the GPUs of one machine."""
SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH)S?(_|$)")
"""Such as HF_TOKEN: policies are brought by stage `policy`, and are folders by then."""
_GRACE_S = 30.0
"""For what is asked to end; then it is ended."""


def environment(gpus: Sequence[str], mark: str) -> dict[str, str]:
    """Return what a group's processes are given.

    Args:
        gpus: those that they see; none: whatever there is.
        mark: tells this group from others.
    """
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    kept = {name: value for name, value in os.environ.items() if _is_passed(name)}
    return {"OMP_NUM_THREADS": "1", **kept, **SET, **chosen, MEMBER: mark}


def _is_passed(name: str) -> bool:
    is_wanted = name in PASSED or name.startswith(PASSED_PREFIXES)
    return is_wanted and SECRET.search(name) is None


@contextmanager
def launched(
    command: Sequence[str], gpus: Sequence[str], mark: str
) -> Generator[subprocess.Popen[bytes]]:
    """A group that runs; at the end it is waited for, or made to end where something went wrong.

    None of its processes is left then, nor of what they have started.
    """
    group = subprocess.Popen(list(command), env=environment(gpus, mark))
    try:
        yield group
    except BaseException:
        group.send_signal(signal.SIGTERM)
        raise
    finally:
        try:
            group.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # an impatient Ctrl-C, too
            _kill_all(mark)
            group.wait()


def _kill_all(mark: str) -> None:
    """Kill whoever has the mark: torch gives each worker a session, and orphans have no parent."""
    while left := _marked(mark):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if psutil.wait_procs(left, timeout=_GRACE_S)[1]:
            return  # the kernel does not let go of them: nobody can do more


def _marked(mark: str) -> list[psutil.Process]:
    """Processes that have it in their environment."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # of another user, or it has ended
            if process.environ().get(MEMBER) == mark:
                found.append(process)
    return found
