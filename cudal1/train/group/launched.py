"""Launch the processes of a training group with a listed environment, and end all of them.

Threat: whatever training imports reads its environment, and crash reports and logs show it. Keys of
providers are not training's business. Their names are free (`api_key_env`), so no list of names to
leave out could be complete. So the variables that training needs are listed instead.
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
"""The environment variable that names the group, in its processes and all that these start."""
PASSED = frozenset(
    """PATH HOME USER LOGNAME SHELL TMPDIR TZ CC CXX CUDACXX CPATH LIBRARY_PATH LD_LIBRARY_PATH
    """.split()
)
PASSED_PREFIXES = tuple(
    """ACCELERATE_ CUDA_ FI_ GLIBC_ GLOO_ GOMP_ HF_ KMP_ MALLOC_ MKL_ NCCL_ NVIDIA_ NVSHMEM_
    OMP_ OPENBLAS_ PYTORCH_ SAFETENSORS_ TOKENIZERS_ TORCH TRANSFORMERS_ TRITON_ TRL_ UCX_
    VLLM_ XDG_""".split()
)
"""Prefixes of variables of torch, the libraries around it, and what joins the GPUs of one machine.
"""
SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH)S?(_|$)")
"""Names of secrets, such as HF_TOKEN. Training needs none: stage `policy` has fetched the policies.
"""
_GRACE_S = 30.0
"""Seconds that processes get to end, before they are killed and after it."""


def environment(gpus: Sequence[str], mark: str) -> dict[str, str]:
    """Return the environment variables that a group's processes get.

    Args:
        gpus: the GPUs that they see; if empty, all GPUs of the machine.
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
    """Run a group; at the end wait for it, or kill it where something went wrong.

    Neither its processes nor any that these have started are left then.
    """
    group = subprocess.Popen(list(command), env=environment(gpus, mark))
    try:
        yield group
    except BaseException:  # Ctrl-C, too: the group ends, and it is raised again
        group.send_signal(signal.SIGTERM)
        raise
    finally:
        try:
            group.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also after an impatient Ctrl-C
            _kill_all(mark)
            group.wait()


def _kill_all(mark: str) -> None:
    """Kill all with the mark: torch gives each worker a session, and orphans have no parent."""
    while left := _marked(mark):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if psutil.wait_procs(left, timeout=_GRACE_S)[1]:
            return  # the kernel does not let go of them; nothing more can be done


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes that have the mark in their environment."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it belongs to another user, or it has ended
            if process.environ().get(MEMBER) == mark:
                found.append(process)
    return found
