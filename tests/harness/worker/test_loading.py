"""A waiting worker practises with the reference; a candidate gets the inputs of the layout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.interval import Ending, wait_ready
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.rings import sealed
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.sources import packed_source
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.shared.packed_source import packed
from cudal1.harness.shared.wire import Layout, TensorSpec, View
from cudal1.harness.worker.engine import HostEngine
from cudal1.harness.worker.loading import MODULE, imported, inputs
from tests.harness.inside import LAYOUT, LIMIT_S, TOP, counts, open_zygote, start_worker, until
from tests.harness.worker.test_engine import JOB as TOY_JOB

SLOW_S = 600.0
"""Seconds that the slow reference takes, far more than the `LIMIT_S` in which a worker must be
ready."""
HAS_COME = """
import builtins, sys, torch

def has_come():
    frame = sys._getframe(1)  # its own would keep itself alive
    while "ring" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["ring"][:512].view(torch.int64)[1] = 1
"""
"""The beginning of a reference that shows the judge how far it is."""
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
    """Start a worker, let it practise until `has_come`, then give it a candidate."""
    first = start_worker(zygote, "")
    job = replace(first.job, practice=packed_source(practice))
    first.close()
    ring = BurstRunner(LAYOUT, torch.device("cpu")).make_ring([])
    worker = zygote.welcome(zygote.begin(job, ring))
    until(lambda: counts(worker)[1] == 1)
    worker.load(TOP + body)
    assert wait_ready(worker, Patience(LIMIT_S)) is Ending.DONE, worker.display_text()
    return worker


@pytest.mark.slow
def test_a_waiting_worker_runs_the_reference(zygote: Zygote) -> None:
    body = "import builtins\ncounts[0] = builtins.practised"
    with _after(zygote, REFERENCE, body) as worker:
        assert counts(worker)[0] == 1


def test_a_waiting_worker_stops_when_a_candidate_comes(zygote: Zygote) -> None:
    with _after(zygote, SLOW, "counts[0] = 1") as worker:
        assert counts(worker)[0] == 1


def test_a_reference_that_raises_or_switches_something_on_hinders_no_candidate(
    zygote: Zygote,
) -> None:
    body = "counts[0] = torch.backends.cuda.matmul.allow_tf32 + torch.backends.cudnn.allow_tf32"
    with _after(zygote, SWITCHES, body) as worker:
        assert counts(worker)[0] == 0


def test_the_practised_reference_is_gone_when_a_candidate_is_loaded(zygote: Zygote) -> None:
    body = "import builtins, gc\ncounts[0] = builtins.alive() is not None"
    left = REFERENCE.replace(
        "        builtins.practised = 1", "        builtins.alive = weakref.ref(self)"
    ).replace("import builtins,", "import builtins, weakref,")
    with _after(zygote, left, body) as worker:
        assert counts(worker)[0] == 0


def test_settings_that_the_reference_switches_on_are_switched_off(zygote: Zygote) -> None:
    body = "counts[0] = torch.zeros(1).dtype == torch.float64 or torch.backends.cudnn.benchmark"
    left = REFERENCE.replace(
        "class Model",
        "torch.set_default_dtype(torch.float64)\n"
        "torch.backends.cudnn.benchmark = True\nclass Model",
    )
    with _after(zygote, left, body) as worker:
        assert counts(worker)[0] == 0


# --- inputs --------------------------------------------------------------------------------------

ARRANGED = Layout(
    (TensorSpec("float32", (3,)),),
    (TensorSpec("float32", (44,)), TensorSpec("uint8", (16,)), TensorSpec("int64", (0,))),
    (),
    2,
    (
        View(0, "float32", (4, 10), (1, 4), 4),
        View(0, "float32", (2, 3), (0, 5), 4, wants_grad=True),
        View(1, "int32", (4,), (1,), 0),
        View(1, "float32", (), (), 3),
        View(2, "int64", (0, 7), (7, 1), 0),
    ),
)


@pytest.fixture
def given() -> list[torch.Tensor]:
    """The inputs of the second slot, with numbered elements."""
    size = ARRANGED.total_bytes
    descriptor, _ = sealed("ring", size)
    engine = HostEngine()
    job = replace(TOY_JOB, layout=ARRANGED, ring_bytes=size)
    ring = engine.share(descriptor, job)
    os.close(descriptor)
    start = ARRANGED.input_start + ARRANGED.input_bytes
    ring[start : start + 176].view(torch.float32).copy_(torch.arange(44.0))
    ring[start + 192 : start + 208].view(torch.int32).copy_(torch.arange(4))
    return inputs(engine, ARRANGED, 1)


def test_inputs_have_the_strides_and_values_of_the_layout(given: list[torch.Tensor]) -> None:
    numbers = torch.arange(44.0)
    assert given[0].equal(numbers[4:].view(10, 4).t())
    assert given[1].equal(numbers[4:19:5].expand(2, 3))
    assert given[2].tolist() == [0, 1, 2, 3]
    assert given[3].view(torch.int32).item() == 3
    assert given[4].shape == (0, 7)
    assert [t.stride() for t in given] == [view.strides for view in ARRANGED.inputs]
    assert [t.requires_grad for t in given] == [False, True, False, False, False]


def test_a_write_to_one_input_changes_another_that_shares_its_memory(
    given: list[torch.Tensor],
) -> None:
    given[0][0, 0] = 99.0
    assert given[1][0, 0].item() == 99.0


def test_a_storage_is_a_tensor_s_own_and_offsets_count_from_its_beginning(
    given: list[torch.Tensor],
) -> None:
    """Otherwise `as_strided` with an offset would read another input, or a weight."""
    storage = given[0].untyped_storage()
    assert (storage.nbytes(), given[0].storage_offset()) == (176, 4)
    assert given[0].as_strided((3,), (1,), 0).tolist() == [0.0, 1.0, 2.0]
    assert storage.data_ptr() == given[1].untyped_storage().data_ptr()
    assert storage.data_ptr() != given[2].untyped_storage().data_ptr()


# --- weights -------------------------------------------------------------------------------------


def test_weights_drawn_with_numpy_or_random_follow_the_job_s_seed(zygote: Zygote) -> None:
    drawn = """
        import random
        import numpy as np

        def __init__(self):
            torch.nn.Module.__init__(self)
            counts[0] = random.getrandbits(60)
            counts[1] = int(np.random.randint(1 << 60))

        ModelNew.__init__ = __init__
    """
    found: list[list[int]] = []
    for _ in range(2):
        with start_worker(zygote, drawn) as worker:
            assert wait_ready(worker, Patience(LIMIT_S)) is Ending.DONE, worker.display_text()
            found.append(counts(worker)[:2])
    assert found[0] == found[1]
    assert found[0][0] != 0


@pytest.mark.parametrize("others", [{}, {"a_helper.py": "VALUE = 3\n"}], ids=["alone", "beside"])
def test_a_source_is_imported_under_one_name_whatever_lies_beside_it(
    others: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    module = imported(packed("class ModelNew: ...\n", others))
    assert module.__name__ == module.ModelNew.__module__ == MODULE
    assert sys.modules.pop(MODULE) is module
