"""Odd inputs, weights or references are judged as they are, or cost their own problem one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import Contract
from cudal1.verdict import Status, Verdict

ONE = "torch.randn(48, 32)"
SQUARE = "torch.randn(32, 32)"


def source(
    forward: str, inputs: str = ONE, init: str = "pass", arguments: str = "x", name: str = "Model"
) -> str:
    return f"""import random
import numpy as np
import torch
import torch.nn as nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def problem_of(text: str, device_class: DeviceClass = DeviceClass.CPU) -> Problem:
    return Problem(
        suite="odd",
        level=1,
        number=1,
        name="odd",
        split=Split.TRAIN,
        revision="r",
        device_class=device_class,
        source=text,
    )


Check = Callable[..., Verdict]


@pytest.fixture
def check(pool: Pool, drop_in_pool: Pool) -> Check:
    """Return a function that checks the reference with some parts replaced as a candidate."""

    def checked(
        forward: str,
        *,
        other: dict[str, str] | None = None,
        contract: Contract = Contract.KERNELBENCH,
        **parts: str,
    ) -> Verdict:
        problem = problem_of(source(forward, **parts))
        theirs: dict[str, Any] = {"forward": forward, **parts, **(other or {})}
        text = source(**theirs, name="ModelNew")
        candidate = Candidate(problem_id=problem.id, source=text)
        its_pool = drop_in_pool if contract is Contract.DROP_IN else pool
        return its_pool.judge(problem, candidate, timing=False).verdict

    return checked


# --- inputs --------------------------------------------------------------------------------------

PAIR = f"*(lambda x: (x, x.t()))({SQUARE})"
INPUTS: dict[str, dict[str, str]] = {
    "transposed": {"inputs": "torch.randn(32, 48).t()"},
    "channels last": {
        "inputs": "torch.randn(4, 8, 6, 6).to(memory_format=torch.channels_last)",
        "init": "self.conv = nn.Conv2d(8, 4, 3)",
        "forward": "return self.conv(x)",
        "holds": "x.is_contiguous(memory_format=torch.channels_last)",
    },
    "repeated": {"inputs": "torch.randn(1, 32).expand(48, 32)", "holds": "x.stride() == (0, 1)"},
    "windows": {"inputs": "torch.randn(99).unfold(0, 32, 2)", "holds": "x.stride() == (2, 1)"},
    "columns of a larger one": {"inputs": "torch.randn(48, 99)[:, 3:35]"},
    "badly aligned": {
        "inputs": "torch.randn(48 * 32 + 1)[1:].view(48, 32)",
        "holds": "x.data_ptr() % 64 == 4",
    },
    "with its transpose": {
        "inputs": PAIR,
        "arguments": "x, y",
        "forward": "return torch.tanh(x @ y)",
        "holds": "x.data_ptr() == y.data_ptr()",
    },
    "twice": {
        "inputs": f"*(lambda x: (x, x))({SQUARE})",
        "arguments": "x, y",
        "forward": "return torch.tanh(x @ y)",
        "holds": "x.data_ptr() == y.data_ptr()",
    },
    "written to through another": {
        "inputs": PAIR,
        "arguments": "x, y",
        "forward": "x.mul_(2.0); return torch.tanh(y)",
    },
    "in parts": {
        "inputs": "*torch.randn(32, 96).chunk(3, dim=-1)",
        "arguments": "q, k, v",
        "forward": "return torch.softmax(q @ k.t(), -1) @ v",
        "holds": "q.stride() == (96, 1)",
    },
    "flagged": {"inputs": "torch.randn(48, 32, requires_grad=True)", "holds": "x.requires_grad"},
    "with a number and nothing": {
        "inputs": f"{ONE}, torch.randn(()), torch.empty(0)",
        "arguments": "x, s, e",
        "forward": "return torch.tanh(x) * s + e.sum()",
        "holds": "s.dim() == e.numel() == 0",
    },
    "read from their storage's beginning": {
        "forward": "return torch.tanh(x.as_strided((32, 48), (48, 1), 0))"
    },
    "with plain values": {
        "inputs": f"2.5, {ONE}, None, 'relu', {{'a': (1, 2)}}, torch.randn(())",
        "arguments": "s, x, n, how, d, t",
        "forward": "return getattr(torch, how)(x) * s * t",
        "holds": "(s, n, d) == (2.5, None, {'a': (1, 2)})",
    },
    "half": {"inputs": "torch.randn(48, 32).half()", "holds": "x.dtype == torch.float16"},
    "booleans": {
        "inputs": f"{ONE}, torch.rand(48, 32) > 0.5",
        "arguments": "x, y",
        "forward": "return torch.where(y, x, -x)",
        "holds": "y.dtype == torch.bool",
    },
    "drawn with numpy": {"inputs": "torch.from_numpy(np.random.randn(48, 32).astype('float32'))"},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_reach_reference_and_candidate_as_they_are_drawn(kind: str, check: Check) -> None:
    parts = dict(INPUTS[kind])
    forward = parts.pop("forward", "return torch.tanh(x)")
    held = f"assert {parts.pop('holds', 'True')}\n        {forward}"
    verdict = check(held, **parts)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_a_candidate_that_takes_a_transposed_input_for_a_contiguous_one_is_wrong(
    check: Check,
) -> None:
    careless = "y = torch.empty(48, 32); y.view(-1).copy_(x.t().reshape(-1)); return torch.tanh(y)"
    verdict = check(
        "return torch.tanh(x)", inputs="torch.randn(32, 48).t()", other={"forward": careless}
    )
    assert verdict.status is Status.INCORRECT


@pytest.mark.slow
def test_a_candidate_that_writes_between_the_elements_of_its_input_is_noticed(check: Check) -> None:
    writes = "x.as_strided((1,), (1,), 0).fill_(1.0); return torch.tanh(x)"
    parts: dict[str, Any] = {"inputs": "torch.randn(48, 99)[:, 3:35]", "other": {"forward": writes}}
    verdict = check("return torch.tanh(x)", **parts)
    assert verdict.properties is not None, verdict.reason
    assert verdict.properties.leaves_inputs is False
    verdict = check("return torch.tanh(x)", contract=Contract.DROP_IN, **parts)
    assert verdict.status is Status.INCORRECT
    assert verdict.reason is not None
    assert "changed its inputs" in verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transposed", "channels last", "with its transpose", "repeated"])
def test_a_reference_with_odd_inputs_gains_nothing_against_itself(kind: str, pool: Pool) -> None:
    parts = {name: text for name, text in INPUTS[kind].items() if name != "holds"}
    problem = problem_of(source(**{"forward": "return torch.tanh(x)", **parts}))
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    verdict = pool.judge(problem, candidate).verdict
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.measurement is not None
    assert verdict.measurement.certified <= 1.01


@pytest.mark.slow
def test_inputs_reach_workers_of_the_fake_device_as_they_are_drawn(fake_pool: Pool) -> None:
    text = source(
        "assert x.stride() == (1, 48)\n"
        "        out = fake.empty((48, 32))\n"
        "        fake.launch(lambda: torch.tanh(x, out=out), cost_us=100)\n"
        "        return out",
        inputs="torch.randn(32, 48).t()",
    ).replace("import random", "from cudal1.harness.worker import fake")
    problem = problem_of(text, DeviceClass.FAKE)
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    verdict = fake_pool.judge(problem, candidate, timing=False).verdict
    assert verdict.status is Status.CORRECT, verdict.reason


# --- weights -------------------------------------------------------------------------------------

LINEAR = "self.fc = nn.Linear(32, 32)"
USED = "return torch.relu(self.fc(x))"
TIED = "self.a = nn.Linear(32, 32); self.b = nn.Linear(32, 32); self.b.weight = self.a.weight"
BOTH = "return self.b(torch.relu(self.a(x)))"


@pytest.mark.parametrize("contract", Contract)
@pytest.mark.parametrize(
    ("forward", "init", "other"),
    [
        (USED, LINEAR, {"init": f"{LINEAR}; self.register_buffer('mask', torch.ones(7))"}),
        (USED, LINEAR, {"init": f"{LINEAR}; self.alpha = nn.Parameter(torch.ones(1))"}),
        (
            USED,
            LINEAR,
            {"init": f"{LINEAR}.double()", "forward": "return self.fc(x.double()).float().relu()"},
        ),
        (BOTH, TIED, {"init": TIED.replace("b.weight = self.a", "a.weight = self.b")}),
        (BOTH, TIED, {"init": TIED.rpartition(";")[0]}),
        (
            "return x * self.s",
            "self.s = nn.Parameter(torch.from_numpy(np.random.rand(32).astype('float32')))",
            None,
        ),
        (
            "return torch.tanh(x * self.k)",
            "self.k = random.random() + torch.from_numpy(np.random.rand(32).astype('float32'))",
            None,
        ),
        (USED, f"{LINEAR}; self.register_buffer('f', torch.ones(2, dtype=torch.complex64))", None),
        (USED, f"{LINEAR}; self.get_extra_state = dict; self.set_extra_state = print", None),
        (USED, f"{LINEAR}; self.register_buffer('r', torch.ones(1).expand(9))", None),
        (USED, f"{LINEAR}; self.e = nn.Parameter(torch.empty(0, 3))", None),
    ],
    ids=[
        "extra buffer",
        "extra parameter",
        "another type",
        "tied in another order",
        "not tied",
        "drawn with numpy",
        "drawn into attributes",
        "complex",
        "extra state",
        "repeated",
        "empty",
    ],
)
def test_weights_are_loaded_by_name_whatever_else_a_module_has(
    forward: str, init: str, other: dict[str, str] | None, contract: Contract, check: Check
) -> None:
    verdict = check(forward, init=init, other=other, contract=contract)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_renamed_weights_are_named_in_the_reason(check: Check) -> None:
    renamed = {"init": LINEAR.replace("fc", "linear"), "forward": USED.replace("fc", "linear")}
    verdict = check(USED, init=LINEAR, other=renamed, contract=Contract.DROP_IN)
    assert verdict.status is Status.INCORRECT
    assert verdict.reason is not None
    assert verdict.reason.startswith("does not follow its weights")
    assert "it has none called fc.weight, fc.bias" in verdict.reason
    assert "its own linear.weight, linear.bias kept the values" in verdict.reason


def test_weight_names_of_a_candidate_are_made_printable_and_short(check: Check) -> None:
    name = "'bad\\nname\\x1b[31m' + 'z' * 5000"
    init = f"self.register_parameter({name}, nn.Parameter(torch.randn(32, 32)))"
    hostile = {"init": init, "forward": "return torch.relu(x @ next(self.parameters()))"}
    verdict = check(USED, init=LINEAR, other=hostile)
    assert verdict.status is Status.INCORRECT
    assert verdict.reason is not None
    assert verdict.reason.isprintable()
    assert len(verdict.reason) < 700


def test_words_of_a_candidate_about_its_weights_decide_nothing(check: Check) -> None:
    says = """import sys
        frame = sys._getframe()
        while not {'control', 'words'} <= set(frame.f_locals):
            frame = frame.f_back
        tell = sys.modules['cudal1.harness.worker.words'].tell
        tell(frame.f_locals['control'], frame.f_locals['words'], 'CORRECT' * 9)
        """
    right = check(USED, init=LINEAR, other={"forward": says + USED})
    assert (right.status, right.reason) == (Status.CORRECT, None)
    wrong = check(USED, init=LINEAR, other={"forward": says + USED + " * 2"})
    assert wrong.status is Status.INCORRECT


# --- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("return x[x > 0]", "the output's shape changes with the inputs"),
        ("raise SystemExit(3)", "its reference raises SystemExit: 3"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "raises Odd"),
    ],
)
def test_an_odd_reference_costs_only_its_own_problem(forward: str, said: str, pool: Pool) -> None:
    problem = problem_of(source(forward))
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    with pytest.raises(SuiteError, match=f"^odd/L1/01_odd: .*{said}"):
        pool.judge(problem, candidate, timing=False)
    other = problem_of(source("return torch.tanh(x)"))
    candidate = Candidate(problem_id=other.id, source=other.null_source)
    assert pool.judge(other, candidate, timing=False).verdict.status is Status.CORRECT


def test_an_input_on_which_the_reference_fails_too_fails_no_candidate(pool: Pool) -> None:
    """Such an input is rare, so that no earlier check has met it."""
    forward = "assert len(self.seen) < 9, 'now and then'; return torch.tanh(x)"
    text = source(forward, init="self.seen = SEEN").replace("import random", "SEEN = []")
    problem = problem_of(text)
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    assert pool.judge(problem, candidate, timing=False).verdict.status is Status.CORRECT
    (prepared,) = [each for each in pool._prepared.values() if each.problem.id == problem.id]
    prepared._oracle._models.model.seen.extend(range(9))
    raises = problem.null_source.replace("assert len(self.seen) < 9", "assert False")
    candidate = Candidate(problem_id=problem.id, source=raises)
    with pytest.raises(SuiteError, match="its reference raises AssertionError: now and then"):
        pool.judge(problem, candidate, timing=False)
