"""What a worker does while it waits for a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from cudal1.harness.burst import Desk
from cudal1.harness.interval import Ending, wait_ready
from cudal1.harness.sandbox import Worker
from cudal1.harness.zygote import Zygote
from tests.harness.inside import LAYOUT, LIMIT_S, TOP, counts, open_zygote, start_worker, until

SLOW_S = 600.0
"""Far more than `LIMIT_S`, within which a worker must be ready."""
HAS_COME = """
import builtins, sys, torch

def has_come():
    frame = sys._getframe(1)  # its own would keep itself alive
    while "ring" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["ring"][:512].view(torch.int64)[1] = 1
"""
"""For a reference: the judge sees how far it is."""
REFERENCE = f"""{HAS_COME}
builtins.practised = 0

class Model(torch.nn.Module):
    def forward(self, x):
        builtins.practised = 1
        has_come()
        return x + 1
"""
SLOW = f"""{HAS_COME}
import time

class Model(torch.nn.Module):
    def forward(self, x):
        has_come()
        for _ in range({int(SLOW_S / 0.05)}):
            time.sleep(0.05)
            x = x + 1
        return x
"""
SWITCHES = f"""{HAS_COME}
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
has_come()
raise ValueError
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    opened = open_zygote()
    yield opened
    opened.close()


def _after(zygote: Zygote, practice: str, body: str) -> Worker:
    """One that had practised so far as it says before it was given a candidate."""
    first = start_worker(zygote, "")
    job = replace(first.job, practice=practice)
    first.close()
    ring = Desk(LAYOUT, torch.device("cpu")).make_ring([])
    worker = zygote.welcome(zygote.begin(job, ring))
    until(lambda: counts(worker)[1] == 1)
    worker.load(TOP + body)
    assert wait_ready(worker, LIMIT_S) is Ending.DONE, worker.display_text()
    return worker


def test_it_runs_the_reference(zygote: Zygote) -> None:
    body = "import builtins\ncounts[0] = builtins.practised"
    with _after(zygote, REFERENCE, body) as worker:
        assert counts(worker)[0] == 1


def test_it_stops_when_it_is_wanted(zygote: Zygote) -> None:
    with _after(zygote, SLOW, "counts[0] = 1") as worker:
        assert counts(worker)[0] == 1


def test_nothing_that_the_reference_raises_or_switches_on_hinders_a_candidate(
    zygote: Zygote,
) -> None:
    body = "counts[0] = torch.backends.cuda.matmul.allow_tf32 + torch.backends.cudnn.allow_tf32"
    with _after(zygote, SWITCHES, body) as worker:
        assert counts(worker)[0] == 0


def test_nothing_of_it_is_left(zygote: Zygote) -> None:
    body = "import builtins, gc\ncounts[0] = builtins.alive() is not None"
    left = REFERENCE.replace(
        "        builtins.practised = 1", "        builtins.alive = weakref.ref(self)"
    ).replace("import builtins,", "import builtins, weakref,")
    with _after(zygote, left, body) as worker:
        assert counts(worker)[0] == 0


def test_what_it_switches_on_is_switched_off(zygote: Zygote) -> None:
    body = "counts[0] = torch.zeros(1).dtype == torch.float64 or torch.backends.cudnn.benchmark"
    left = REFERENCE.replace(
        "class Model", "torch.set_default_dtype(torch.float64)\n"
        "torch.backends.cudnn.benchmark = True\nclass Model",
    )  # fmt: skip
    with _after(zygote, left, body) as worker:
        assert counts(worker)[0] == 0
