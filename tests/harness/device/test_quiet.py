"""A judge's process keeps off the workers' cores while it judges, and is restored afterwards."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from cudal1.harness.device import quiet
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass

CPU = find_device(DeviceClass.CPU)


def _state() -> tuple[object, ...]:
    return os.sched_getaffinity(0), torch.get_num_threads(), torch.get_rng_state().tolist()


def test_settings_are_restored_even_after_an_error() -> None:
    def fail() -> None:
        torch.manual_seed(1)
        raise KeyError

    before = _state()
    with pytest.raises(KeyError), quiet.undisturbed(CPU), quiet.staying(CPU):
        fail()
    assert _state() == before


def test_the_judge_keeps_off_the_cores_of_all_workers() -> None:
    cores = os.sched_getaffinity(0)
    device = CPU.model_copy(update={"reserved_cores": tuple(sorted(cores)[1:])})
    with quiet.undisturbed(device):
        assert os.sched_getaffinity(0) == {min(cores)}


def test_the_judge_stays_on_the_workers_cores_if_there_is_no_other() -> None:
    cores = os.sched_getaffinity(0)
    with quiet.undisturbed(CPU.model_copy(update={"reserved_cores": tuple(cores)})):
        assert os.sched_getaffinity(0) == cores


def test_a_staying_thread_has_one_of_the_cores_that_it_may_use() -> None:
    cores = os.sched_getaffinity(0)
    with quiet.staying(CPU):
        stayed = os.sched_getaffinity(0)
    assert len(stayed) == 1
    assert stayed <= cores


def test_a_judge_that_times_on_a_shared_gpu_has_the_gpu_s_own_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    shared = CPU.model_copy(update={"reserved_cores": (cores[-1],), "lane_cores": (cores[-1],)})
    with quiet.undisturbed(shared), quiet.staying(shared):
        assert os.sched_getaffinity(0) == {cores[0]}
    several = CPU.model_copy(
        update={"reserved_cores": (15, 14, 13, 12), "lane_cores": (13, 12), "index": 1}
    )
    assert quiet.judging_cores(several, set(range(16))) == {0, 1, 2, 3}
    assert quiet.timing_core(several, set(range(16))) == 2
    assert quiet.timing_core(several.model_copy(update={"index": 9}), set(range(16))) is None


def test_no_garbage_is_collected_meanwhile() -> None:
    with quiet.no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
