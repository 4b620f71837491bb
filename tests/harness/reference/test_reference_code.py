"""A reference's errors and settings stay with its problem."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import nn

from cudal1.errors import SuiteError, WorkerError
from cudal1.harness.reference.reference_code import ReferenceCode, RefusalError, kept_as_it_is
from cudal1.problem import DeviceClass, Problem, Split

PROBLEM = Problem(
    suite="toy",
    level=1,
    number=1,
    name="toy",
    split=Split.TRAIN,
    revision="r",
    device_class=DeviceClass.CPU,
    source="",
)


class NoTextError(Exception):
    def __init__(self, what: object, why: object) -> None:
        self.what = lambda: (what, why)

    def __str__(self) -> str:
        raise KeyError("no text")


class BareError(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\nway"), "ValueError: no way"),
        (NoTextError(1, 2), "NoTextError: (its text raises KeyError)"),
        (BareError("x"), "BareError: x"),
        (SystemExit(3), "SystemExit: 3"),
        (OSError(2, "No such file"), "FileNotFoundError: [Errno 2] No such file"),
        (RuntimeError("\x1b[31mred\x00"), "RuntimeError: [31mred"),
    ],
)
def test_any_error_becomes_a_line_that_names_the_problem(error: BaseException, said: str) -> None:
    with pytest.raises(SuiteError) as caught, ReferenceCode(PROBLEM):
        raise error
    assert str(caught.value) == f"toy/L1/01_toy: its reference raises {said}"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_long_text_is_cut() -> None:
    with pytest.raises(RefusalError) as caught, ReferenceCode(PROBLEM):
        raise ValueError("x" * 10_000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WorkerError("ours")])
def test_an_interrupt_and_our_own_errors_pass(error: BaseException) -> None:
    with pytest.raises(type(error)), ReferenceCode(PROBLEM):
        raise error


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_shortage_of_memory_is_no_refusal(error: Exception) -> None:
    with pytest.raises(torch.OutOfMemoryError), ReferenceCode(PROBLEM):
        raise error


SWITCHES: dict[str, tuple[Callable[[], object], Callable[[], object], bool]] = {
    "type": (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.get_default_dtype() is torch.float64,
        True,
    ),
    "determinism": (
        lambda: torch.use_deterministic_algorithms(True),
        torch.are_deterministic_algorithms_enabled,
        True,
    ),
    "gradients": (
        lambda: torch.set_grad_enabled(False),
        lambda: not torch.is_grad_enabled(),
        False,
    ),
    "warnings": (
        lambda: warnings.simplefilter("ignore"),
        lambda: warnings.filters[0][0] == "ignore",
        True,
    ),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_setting_that_a_reference_switches_holds_for_its_own_calls_alone(switch: str) -> None:
    turn, is_turned, comes_back = SWITCHES[switch]
    code = ReferenceCode(PROBLEM)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(RefusalError), code:
            turn()
            raise ValueError
        assert not is_turned()
        with code:
            assert bool(is_turned()) is comes_back
        assert not is_turned()
        with ReferenceCode(PROBLEM):
            assert not is_turned()


# --- modules -------------------------------------------------------------------------------------


def test_attributes_that_are_set_on_a_module_are_undone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with suppress(RuntimeError), kept_as_it_is(model):
        model.extra = nn.Parameter(torch.ones(1))
        model[0].weight = nn.Parameter(torch.zeros(2, 2))
        model[0].cache = 3
        del model[0].bias
        model.append(nn.ReLU())
        raise RuntimeError
    assert len(model) == 2
    assert not hasattr(model[0], "cache")
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(after[name].equal(tensor) for name, tensor in before.items())


def test_scripted_modules_can_be_kept() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    with kept_as_it_is(model):
        model(torch.ones(1, 2))
    assert model(torch.ones(1, 2)).shape == (1, 2)
