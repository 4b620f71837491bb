"""Traits of a reference survive JSON, save calls of it, and must make sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cudal1.harness.inputs.draws import Draws
from cudal1.harness.oracle import oracle as oracles
from cudal1.harness.oracle.answering import Answering
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.oracle.traits import FARTHEST, Traits
from cudal1.harness.reference.reference import Reference
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import PrecisionClass

MODEL = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    {draw}

def get_init_inputs():
    return []
"""


def problem_of(
    forward: str = "return self.linear(x)",
    draw: str = "return [torch.randn(4, 8)]",
    arguments: str = "x",
) -> Problem:
    source = MODEL.format(forward=forward, draw=draw, arguments=arguments)
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=source,
    )


KINDS = {
    "weights": problem_of(),
    "integers": problem_of(
        "return x.argmax(-1), x[:, y]", "return [torch.randn(4, 8), torch.randint(8, (3,))]", "x, y"
    ),
    "views that share": problem_of(
        "return x @ y", "x = torch.randn(8, 8)\n    return [x, x.t()]", "x, y"
    ),
    "channels last": problem_of(
        "return torch.relu(x)",
        "return [torch.randn(2, 4, 5, 3).to(memory_format=torch.channels_last)]",
    ),
    "writes to its input": problem_of("return x.sub_(1.0).tanh()"),
    "no float64": problem_of("assert x.dtype == torch.float32\n        return torch.relu(x)"),
    "numpy": problem_of(
        "return torch.relu(x)",
        "import numpy as np\n    return [torch.from_numpy(np.random.randn(4, 8)).float()]",
    ),
}


def oracle_of(problem: Problem, traits: Traits | None = None) -> Oracle:
    return Oracle(problem, weight_seed=1, device=torch.device("cpu"), traits=traits)


def fresh(problem: Problem) -> Oracle:
    """Return an oracle that has to learn everything."""
    for key in [key for key in oracles._known if key[0] == problem.id]:
        del oracles._known[key]
    return oracle_of(problem)


@pytest.mark.parametrize("kind", KINDS)
def test_traits_are_the_same_after_json(kind: str) -> None:
    traits = fresh(KINDS[kind]).traits
    again = Traits.model_validate(json.loads(json.dumps(traits.model_dump(mode="json"))))
    assert again == traits
    assert list(again.families) == list(traits.families)


@pytest.mark.parametrize("kind", KINDS)
def test_an_oracle_that_is_given_traits_answers_like_one_that_learned_them(kind: str) -> None:
    problem = KINDS[kind]
    first = fresh(problem)
    second = oracle_of(problem, Traits.model_validate_json(first.traits.model_dump_json()))
    assert (second.families, second.input_views) == (first.families, first.input_views)
    for family in first.families:
        one, other = (each.draw(5, family) for each in (first, second))
        assert all(map(torch.equal, one.inputs, other.inputs))
        keys = zip(first.exact_key(one), second.exact_key(other), strict=True)
        assert all(torch.equal(a, b) and error == same for (a, error), (b, same) in keys)


@pytest.mark.parametrize(
    ("forward", "least", "most"),
    [
        ("return self.linear(x)", 1e-9, 1e-6),
        ("return (x - x.mean(dim=0)).mean(dim=0)", 0.5, FARTHEST),
        ("return ((x - x.mean(dim=0)).mean(dim=0) * 1e9).long()", 0.5, 1.0),
        ("return x.argmax(-1)", 0.0, 0.0),
        ("assert x.dtype == torch.float32\n        return torch.relu(x)", 0.0, 0.0),
    ],
    ids=["accurate", "rounding errors", "as integers", "integers", "no float64"],
)
def test_a_reference_s_error_is_known_without_the_limit_of_bounds(
    forward: str, least: float, most: float
) -> None:
    traits = fresh(problem_of(forward, "return [torch.randn(7, 8)]")).traits
    assert least <= traits.off_by <= most


@pytest.mark.parametrize(
    ("precision", "is_weak"), [(PrecisionClass.STRICT, False), (PrecisionClass.HALF, True)]
)
def test_a_mean_over_many_numbers_is_told_apart_in_class_strict(
    precision: PrecisionClass, is_weak: bool
) -> None:
    """Such as a loss: it moves by 0.002, which float16 would hardly show."""
    problem = problem_of("return (x * x).mean()", "return [torch.randn(2000, 400)]")
    cpu = torch.device("cpu")
    traits = Oracle(problem, weight_seed=1, device=cpu, precision=precision).traits
    assert 1e-5 < traits.input_effect < 5e-3
    assert (traits.weakness is not None) is is_weak


def test_outputs_in_one_buffer_make_no_weak_reference() -> None:
    problem = problem_of(
        "self.kept = getattr(self, 'kept', torch.empty_like(x))\n        return self.kept.copy_(x)"
    )
    assert fresh(problem).traits.weakness is None


def test_inputs_that_cannot_be_mixed_make_no_weak_reference() -> None:
    """The first input of one draw and the second of another are no pair."""
    problem = problem_of(
        "assert torch.equal(x, y)\n        return x + y",
        "x = torch.randn(4, 8)\n    return [x, x.clone()]",
        "x, y",
    )
    traits = fresh(problem).traits
    assert traits.weakness is None
    assert traits.input_effect > 0.5


def test_an_oracle_that_is_given_traits_neither_draws_nor_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = KINDS["weights"]
    traits = fresh(problem).traits

    def asks(*_: object, **__: object) -> object:
        raise AssertionError("it asks the reference")

    made: list[object] = []
    make = Reference.make
    for owner, name in ((Answering, "plain"), (Answering, "exact"), (Draws, "draw")):
        monkeypatch.setattr(owner, name, asks)
    monkeypatch.setattr(Reference, "make", lambda self: (made.append(self), make(self))[1])
    oracle_of(problem, traits)
    assert len(made) == 2  # in its own types, and in float64
    made.clear()
    oracle_of(problem, traits.model_copy(update={"runs_in_float64": False}))
    assert len(made) == 1


def _changed(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(traits: dict[str, Any]) -> None:
        *names, last = path.split(".")
        place: Any = traits
        for name in names:
            place = place[int(name) if name.isdigit() else name]
        place[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _changed("families", {}),
        _changed("families", {"negated": {"relative_l2": 0.0, "element": 0.0}}),
        _changed("families.own.relative_l2", float("nan")),
        _changed("families.own.element", float("inf")),
        _changed("families.own.element", -1.0),
        _changed("families.nobody", {"relative_l2": 0.0, "element": 0.0}),
        _changed("arrangement.views", []),
        _changed("arrangement.views.0.storage", 1),
        _changed("arrangement.views.0.storage", -1),
        _changed("arrangement.views.0.offset", 1 << 40),
        _changed("arrangement.views.0.shape", [4, 9]),
        _changed("arrangement.views.0.shape", [4]),
        _changed("arrangement.views.0.strides", [-8, 1]),
        _changed("arrangement.views.0.dtype", "complex64"),
        _changed("arrangement.parts.0.shape", [5, 8]),
        _changed("arrangement.storages.0.dtype", "object"),
        _changed("arrangement.storages.0.shape", [4, 8]),
        _changed("output_specs", []),
        _changed("output_specs.0.dtype", "string"),
        _changed("output_specs.0.shape", [0]),
        _changed("work.num_bytes", -1),
        _changed("work.num_bytes", "many"),
        _changed("runs_in_float64", "perhaps"),
        _changed("more", 1),
        lambda traits: traits.pop("work"),
    ],
)
def test_traits_that_make_no_sense_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    traits = fresh(KINDS["weights"]).traits.model_dump(mode="json")
    Traits.model_validate(traits)
    change(traits)
    with pytest.raises(ValidationError):
        Traits.model_validate(traits)


def test_the_work_of_a_call_is_learned_with_the_rest() -> None:
    work = fresh(KINDS["channels last"]).traits.work
    assert work.num_bytes > 0
    assert not work.lacked_memory


def test_work_says_if_it_lacked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")

    monkeypatch.setattr(torch.autograd, "grad", full)
    assert fresh(KINDS["channels last"]).traits.work.lacked_memory
