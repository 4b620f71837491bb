"""The judge's own process while it judges: off the workers' cores, in one place, and put back."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from cudal1.harness import find_device, quiet
from cudal1.problem import DeviceClass

CPU = find_device(DeviceClass.CPU)


def _state() -> tuple[object, ...]:
    return os.sched_getaffinity(0), torch.get_num_threads(), torch.get_rng_state().tolist()


def test_what_was_borrowed_is_given_back_even_after_an_error() -> None:
    def fail() -> None:
        torch.manual_seed(1)
        raise KeyError

    before = _state()
    with pytest.raises(KeyError), quiet.undisturbed(CPU), quiet.staying():
        fail()
    assert _state() == before


def test_the_judge_keeps_off_the_cores_of_all_workers() -> None:
    cores = os.sched_getaffinity(0)
    device = CPU.model_copy(update={"reserved_cores": tuple(sorted(cores)[1:])})
    with quiet.undisturbed(device):
        assert os.sched_getaffinity(0) == {min(cores)}


def test_where_there_is_no_other_core_it_stays_on_theirs() -> None:
    cores = os.sched_getaffinity(0)
    with quiet.undisturbed(CPU.model_copy(update={"reserved_cores": tuple(cores)})):
        assert os.sched_getaffinity(0) == cores


def test_who_stays_has_one_core_of_those_it_may_use() -> None:
    cores = os.sched_getaffinity(0)
    with quiet.staying():
        stayed = os.sched_getaffinity(0)
    assert len(stayed) == 1
    assert stayed <= cores


def test_no_garbage_is_looked_for_meanwhile() -> None:
    with quiet.no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
