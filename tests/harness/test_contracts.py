"""A candidate owes KernelBench's terms, or those of a module that replaces another.

A duty under one contract alone is a property of a correct verdict under the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import NULL_MARK, DeviceClass, Problem, Split
from cudal1.protocol import Contract, EvalProtocol, Mode
from cudal1.verdict import Properties, Status, Verdict

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
N = 32
REFERENCE = f"""
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.rand(size))

    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale

def get_inputs():
    return [torch.randn(48, {N})]

def get_init_inputs():
    return [{N}]
"""
ITSELF = REFERENCE.replace("Model(", "ModelNew(")
FOLDED = """
class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        fc = nn.Linear(size, size)
        self.s = nn.Parameter(torch.rand(size))
        self.register_buffer("w", fc.weight.detach().t().contiguous())
        self.b = nn.Parameter(fc.bias.detach().clone())

    def forward(self, x):
        return torch.relu(torch.addmm(self.b, x, self.w)) * self.s
"""
OTHER_ORDER = """
class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(size))
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale
"""
SOME_SEEDS = ITSELF.replace(
    "        super().__init__()\n",
    "        super().__init__()\n        torch.rand(torch.initial_seed() % 2)\n",
)
NEITHER = OTHER_ORDER.replace("self.fc", "self.linear")
ONE_BUFFER = ITSELF.replace(
    "        return",
    "        if not hasattr(self, 'out'): self.out = torch.empty(48, 32)\n        y =",
).replace("* self.scale", "* self.scale\n        self.out.copy_(y)\n        return self.out")
SEVERAL_BUFFERS = ITSELF.replace(
    "        return",
    "        if not hasattr(self, 'outs'): self.outs, self.n = torch.empty(3, 48, 32), 0\n"
    "        self.n += 1\n        y =",
).replace("* self.scale", "* self.scale\n        return self.outs[self.n % 3].copy_(y)")
USES_UP = ITSELF.replace("        return", "        y =").replace(
    "* self.scale", "* self.scale\n        x.zero_()\n        return y"
)
RANDOM_BITS = ITSELF.replace(
    "* self.scale",
    "* self.scale * (1 + 2e-7 * torch.rand_like(x))",  # a single factor may be 1 both times
)
SEED_RECALLED = ITSELF.replace(
    "        return", "        assert torch.initial_seed() != 7, 'public'\n        return"
)

Check = Callable[..., Verdict]


def problem_of(source: str, name: str = "x") -> Problem:
    return Problem(
        suite="shipped",
        level=1,
        number=1,
        name=name,
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="test",
        source=HEADER + source,
    )


@pytest.fixture
def check(pool: Pool, drop_in_pool: Pool) -> Check:
    """Return a function that checks a candidate under a contract."""

    def checked(
        candidate: str, contract: Contract, reference: str = REFERENCE, **named: Any
    ) -> Verdict:
        problem = problem_of(reference)
        asked = Candidate(problem_id=problem.id, source=HEADER + candidate)
        its_pool = drop_in_pool if contract is Contract.DROP_IN else pool
        return its_pool.judge(problem, asked, **{"timing": False, **named}).verdict

    return checked


def properties(verdict: Verdict) -> Properties:
    assert verdict.properties is not None, verdict.reason
    return verdict.properties


@pytest.mark.slow
@pytest.mark.parametrize("contract", Contract)
def test_the_reference_itself_has_every_property(contract: Contract, check: Check) -> None:
    seen = properties(check(ITSELF, contract))
    assert (seen.follows_weights, seen.fresh_outputs, seen.leaves_inputs) == (True, True, True)
    assert (seen.deterministic, seen.needs_compiler) == (True, False)
    # the other contract does not look: its weights are loaded before the first call
    assert seen.draws_weights is (True if contract is Contract.KERNELBENCH else None)


@pytest.mark.parametrize(
    ("candidate", "owed", "reason"),
    [
        (FOLDED, "follows_weights", "does not follow its weights: others were loaded"),
        (ONE_BUFFER, "fresh_outputs", "reused_buffer"),
        (SEVERAL_BUFFERS, "fresh_outputs", "reused_buffer"),
        (USES_UP, "leaves_inputs", "changed its inputs in place"),
    ],
    ids=["weights folded", "one buffer", "several buffers", "inputs used up"],
)
def test_a_duty_of_drop_in_alone_is_a_property_under_kernelbench(
    candidate: str, owed: str, reason: str, check: Check
) -> None:
    verdict = check(candidate, Contract.KERNELBENCH)
    seen = properties(verdict).model_dump(exclude={"needs_compiler", "copies_reference"})
    assert seen.pop(owed) is False
    assert set(seen.values()) == {True}
    verdict = check(candidate, Contract.DROP_IN)
    assert verdict.status is Status.INCORRECT
    assert reason in (verdict.reason or "")
    assert verdict.properties is None


def test_missing_weights_are_named_where_they_are_owed(check: Check) -> None:
    reason = check(FOLDED, Contract.DROP_IN).reason or ""
    assert "it has none called scale, fc.weight, fc.bias, which the reference has" in reason


@pytest.mark.parametrize("contract", Contract)
def test_a_constructor_that_draws_in_another_order_is_given_weights_by_name(
    contract: Contract, check: Check
) -> None:
    seen = properties(check(OTHER_ORDER, contract))
    assert seen.follows_weights is True
    if contract is Contract.KERNELBENCH:
        assert seen.draws_weights is False


@pytest.mark.slow
def test_a_constructor_that_draws_the_references_weights_under_some_seeds_is_correct(
    check: Check,
) -> None:
    """A constructor in bfloat16 does so; each process may be given the weights by name."""
    found = [check(SOME_SEEDS, Contract.KERNELBENCH) for _ in range(8)]
    assert [verdict.status for verdict in found] == [Status.CORRECT] * 8, found
    assert any(properties(verdict).draws_weights is False for verdict in found)


def test_a_candidate_that_draws_other_weights_under_other_names_is_incorrect(check: Check) -> None:
    verdict = check(NEITHER, Contract.KERNELBENCH)
    assert verdict.status is Status.INCORRECT
    reason = verdict.reason or ""
    assert "wrong output: input" in reason
    assert "with the reference's weights loaded by name, too: it has none called fc.w" in reason


def test_outputs_that_differ_by_a_bit_are_not_deterministic(check: Check) -> None:
    assert properties(check(RANDOM_BITS, Contract.KERNELBENCH)).deterministic is False


@pytest.mark.slow
def test_every_process_gets_a_seed_of_its_own_and_never_the_public_one(
    pool: Pool, quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(REFERENCE, "seeds")
    pool.judge(problem, Candidate(problem_id=problem.id, source="class ModelNew: pass"))
    workers = pool._prepared[problem.id]._workers
    seeds, real = list[int](), workers._begin

    def begin(entry: str, cpu_s: int | None, seed: int, source: str | None = None) -> Any:
        seeds.extend([seed] if entry == "ModelNew" else [])
        return real(entry, cpu_s, seed, source)

    monkeypatch.setattr(workers, "_begin", begin)
    candidate = Candidate(problem_id=problem.id, source=HEADER + SEED_RECALLED)
    for timing in (False, True):
        assert pool.judge(problem, candidate, timing=timing).verdict.status is Status.CORRECT
    assert len(seeds) >= 4
    assert len({*seeds, quick.seed}) == len(seeds) + 1


def test_a_problem_with_a_constructor_that_draws_nothing_needs_one_process(
    pool: Pool, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, verdict = _checked_noting(pool, named_problem("silu"), NULL_MARK, monkeypatch)
    assert verdict.status is Status.CORRECT
    assert begun == ["ModelNew"]


@pytest.mark.slow
def test_a_copy_of_the_reference_needs_one_process_and_is_checked_like_any_other(
    pool: Pool, named_problem: Callable[[str], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, verdict = _checked_noting(pool, named_problem("linear"), "", monkeypatch)
    others, other = _checked_noting(pool, named_problem("linear"), NULL_MARK, monkeypatch)
    assert (begun, others) == (["ModelNew"], ["ModelNew", "ModelNew"])
    seen, usual = properties(verdict).model_dump(), properties(other).model_dump()
    assert (seen.pop("copies_reference"), usual.pop("copies_reference")) == (True, False)
    assert seen == usual
    assert seen["draws_weights"] is True
    assert verdict.correctness is not None
    assert other.correctness is not None
    assert verdict.correctness.stage == other.correctness.stage
    assert verdict.correctness.num_inputs == other.correctness.num_inputs


def _checked_noting(
    pool: Pool, problem: Problem, ending: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], Verdict]:
    """Check the reference's source with an ending; return the entries begun and the verdict."""
    source = problem.null_source.removesuffix(NULL_MARK) + ending
    candidate = Candidate(problem_id=problem.id, source=source)
    pool.judge(problem, candidate, timing=False)
    workers, begun = pool._prepared[problem.id]._workers, list[str]()
    real = workers._begin

    def begin(entry: str, *others: Any) -> Any:
        begun.append(entry)
        return real(entry, *others)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_begin", begin)
        return begun, pool.judge(problem, candidate, timing=False).verdict


# --- mode ----------------------------------------------------------------------------------------

NORMALISED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x))

def get_inputs():
    return [torch.randn(4, 3, 12, 12)]

def get_init_inputs():
    return []
"""
NORM_FOLDED = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        norm = nn.BatchNorm2d(8)
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        self.register_buffer("w", (self.conv.weight * factor.view(-1, 1, 1, 1)).detach())
        bias = (self.conv.bias - norm.running_mean) * factor + norm.bias
        self.register_buffer("b", bias.detach())

    def forward(self, x):
        return F.conv2d(x, self.w, self.b)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "candidate", "status"),
    [
        (Mode.EVAL, NORM_FOLDED, Status.CORRECT),
        (Mode.TRAIN, NORM_FOLDED, Status.INCORRECT),
        (Mode.CONSTRUCTED, NORM_FOLDED, Status.INCORRECT),
        (Mode.EVAL, NORMALISED.replace("Model(", "ModelNew("), Status.CORRECT),
        (Mode.TRAIN, NORMALISED.replace("Model(", "ModelNew("), Status.CORRECT),
    ],
)
def test_a_batch_norm_may_be_folded_in_eval_mode_alone(
    mode: Mode, candidate: str, status: Status, open_pool: Any, quick: EvalProtocol
) -> None:
    problem = problem_of(NORMALISED)
    asked = Candidate(problem_id=problem.id, source=HEADER + candidate)
    with open_pool(quick.model_copy(update={"mode": mode})) as pool:
        judged: Judgement = pool.judge(problem, asked, timing=False)
    assert judged.verdict.status is status, judged.verdict.reason


@pytest.mark.slow
def test_a_problem_may_set_its_mode_in_its_constructor(check: Check) -> None:
    evaluated = NORMALISED.replace("nn.BatchNorm2d(8)", "nn.BatchNorm2d(8); self.eval()")
    assert check(NORM_FOLDED, Contract.KERNELBENCH, evaluated).status is Status.CORRECT
