"""The correctness check notices skipped work, or the problem is known to be too loose for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

from cudal1.errors import DeviceLostError, SuiteError
from cudal1.harness.admission import mutants, mutations
from cudal1.harness.admission.mutants import examine
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.inputs.draws import Draw, Draws
from cudal1.harness.oracle import oracle as oracles
from cudal1.harness.oracle import reference_examination
from cudal1.harness.oracle.correctness import Expected, compare
from cudal1.harness.oracle.oracle import Oracle
from cudal1.kill_table import KillTable
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import Contract, EvalProtocol, PrecisionClass

Table = Callable[..., KillTable]
LAST = mutants.LAST_OPERATOR
LINEAR = "super().__init__()\n        self.w = nn.Parameter(torch.randn(32, 32))"


def problem_of(forward: str, inputs: str = "torch.randn(16, 32)", init: str = "") -> Problem:
    arguments = "x, y" if "), torch." in inputs else "x"
    source = f"""import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        {init or "super().__init__()"}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
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


@pytest.fixture(scope="module")
def table(quick: EvalProtocol) -> Table:
    """Return a function that makes the kill table of a forward."""

    def made(
        *parts: str,
        precision: PrecisionClass = PrecisionClass.STRICT,
        contract: Contract = Contract.KERNELBENCH,
    ) -> KillTable:
        protocol = quick.model_copy(update={"precision": precision, "contract": contract})
        return examine(problem_of(*parts), protocol, find_device(DeviceClass.CPU))[0]

    return made


def survivors(table: KillTable) -> set[str]:
    return {mutant.name for mutant in table.survivors}


def fate(table: KillTable, name: str) -> bool | None:
    (found,) = [mutant for mutant in table.mutants if mutant.name == name]
    return found.killed


# --- sound problems ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        ("return torch.relu(x)",),
        ("return torch.softmax(x, dim=-1)",),
        ("return torch.relu(x @ self.w)", "torch.randn(16, 32)", LINEAR),
        ("return x @ y", "torch.randn(16, 32), torch.randn(32, 8)"),
        ("return x.sum()",),
        ("return x.argmax(dim=-1)",),
        ("return x > 0",),
        ("return x.half()",),
        ("return x.sort(dim=-1)",),
        ("return x.t()",),
        ("return torch.relu(x)", "torch.rand(16, 32)"),
    ],
)
def test_a_sound_problem_has_no_survivor(table: Table, parts: tuple[str, ...]) -> None:
    assert table(*parts).rejection is None


def test_zeros_and_the_mean_are_no_softmax_however_wide(table: Table) -> None:
    """Each of 16,384 values is near 6e-5: a bare tolerance of 1e-2 would accept anything."""
    wide = table("return torch.softmax(x, dim=-1)", "torch.randn(4, 16384)")
    assert wide.survivors == ()
    assert fate(wide, "zeros") is fate(wide, "mean") is fate(wide, "first_half") is True


def test_a_relu_that_positive_inputs_never_need_is_missed_on_other_families_alone(
    table: Table,
) -> None:
    dropped = [
        m
        for m in table("return torch.relu(x)", "torch.rand(16, 32)").mutants
        if m.name in ("last_operator", "passes_input[0]")
    ]
    assert all(mutant.killed and mutant.family != "own" for mutant in dropped)


def test_a_table_names_the_invariants_of_the_check_s_inputs(table: Table) -> None:
    triangular = "torch.rand(16, 16).tril(), torch.randn(16, 8)"
    found = table("return x @ y", triangular)
    assert found.invariants == ("input 0: lower triangular",)
    assert found.rejection is None


def test_a_relu_that_a_promise_makes_needless_need_not_be_noticed(table: Table) -> None:
    assert fate(table("return torch.relu(x)", "torch.randn(16, 32).relu()"), LAST) is None
    assert fate(table("return torch.relu(x)", "torch.randn(16, 32) + 10"), LAST) is True


def test_equal_problems_have_equal_tables(table: Table) -> None:
    assert table("return torch.relu(x)") == table("return torch.relu(x)")


def test_the_random_numbers_of_others_do_not_change(table: Table) -> None:
    before = torch.get_rng_state()
    table("return torch.relu(x)")
    assert torch.equal(torch.get_rng_state(), before)


# --- loose problems ------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", ["return x * 0.0 + 3.0", "return x + 1e-9 * y"])
def test_no_mutant_is_tried_on_a_weak_reference(table: Table, forward: str) -> None:
    weak = table(forward, "torch.randn(8, 8), torch.randn(8, 8)")
    assert all(mutant.killed is None for mutant in weak.mutants)
    assert weak.rejection is None


@pytest.mark.parametrize(
    ("sizes", "found"),
    [("(64, 1)", "no_small_rows"), ("(1, 64)", "no_small_columns")],
    ids=["rows", "columns"],
)
def test_rows_and_columns_that_are_tiny_beside_others_are_found(
    table: Table, sizes: str, found: str
) -> None:
    inputs = f"torch.randn(64, 64), torch.randn{sizes}"
    assert survivors(table("return torch.tanh(x) * torch.exp(8.0 * y)", inputs)) == {found}
    assert table("return torch.tanh(x) * torch.exp(y)", inputs).rejection is None


def test_weights_that_hardly_matter_are_found(table: Table) -> None:
    parts = "return torch.tanh(x) + 1e-9 * (x @ self.w)", "torch.randn(16, 32)", LINEAR
    loose = table(*parts, contract=Contract.DROP_IN)
    assert survivors(loose) >= {"other_weights", "first_weights"}


@pytest.mark.parametrize("contract", Contract)
def test_weights_that_matter_kill_mutants_with_other_weights(
    table: Table, contract: Contract
) -> None:
    sound = table("return x @ self.w", "torch.randn(16, 32)", LINEAR, contract=contract)
    assert fate(sound, "other_weights") is True
    assert fate(sound, "first_weights") is True


def test_weights_without_any_effect_are_no_reason_to_refuse(table: Table) -> None:
    unused = table("return torch.tanh(x)", "torch.randn(16, 32)", LINEAR)
    assert unused.rejection is None
    assert fate(unused, "other_weights") is None


def test_a_problem_that_returns_its_input_is_found(table: Table) -> None:
    assert survivors(table("return x.t().contiguous().t()")) == {"passes_input[0]"}


def test_a_last_operator_within_the_tolerance_is_found(table: Table) -> None:
    assert survivors(table("return torch.tanh(x) + 1e-9")) == {"last_operator"}


def test_a_last_operator_that_changes_nothing_is_replaced_by_the_one_before(table: Table) -> None:
    assert fate(table("return torch.relu(torch.tanh(x).abs()).clone()"), "last_operator") is True


def test_a_loose_second_output_is_found_by_itself(table: Table) -> None:
    loose = table("return torch.tanh(x), x * 0.0 + 2.0")
    assert "stale[1]" in survivors(loose)
    assert "stale[0]" not in survivors(loose)


def test_a_bound_widened_by_the_reference_s_own_error_lets_half_precision_through(
    table: Table,
) -> None:
    """The rest of x beside a million is rounded to 1/16, so the bound for all elements is 8 %."""
    loose = table("return torch.cat([x, x[:1] + 1e6 - 1e6])")
    assert {"float16", "bfloat16", "one_off"} & survivors(loose)


def test_a_check_that_refuses_the_reference_says_so(quick: EvalProtocol, table: Table) -> None:
    hopeless = table(
        "return x if float(x[0, 0]) < 1.5 else (x - x.mean(dim=0)).mean(dim=0).expand_as(x)",
        "torch.randn(7, 8) + 2.0 * (torch.rand(()) < 0.2)",
    )
    assert hopeless.refused_reference is not None
    assert "own" in hopeless.refused_reference


# --- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "tried"),
    [
        (PrecisionClass.STRICT, {"float16", "bfloat16"}),
        (PrecisionClass.TF32, {"bfloat16"}),
        (PrecisionClass.HALF, set[str]()),
    ],
)
def test_a_class_need_not_kill_the_rounding_that_it_allows(
    table: Table, precision: PrecisionClass, tried: set[str]
) -> None:
    names = {m.name for m in table("return torch.tanh(x)", precision=precision).mutants}
    assert names & {"float16", "bfloat16"} == tried


def test_half_precision_that_changes_no_bit_is_no_mutant(table: Table) -> None:
    exact = table("return (x > 0).float()", "torch.randint(-3, 3, (16, 32)).float()")
    assert fate(exact, "float16") is None


def test_half_precision_is_no_mutant_of_outputs_that_are_not_finer(table: Table) -> None:
    assert fate(table("return x.half()"), "float16") is None
    assert fate(table("return x.half()"), "bfloat16") is True
    assert fate(table("return x.argmax(dim=-1)"), "float16") is None


def test_a_reference_that_cannot_be_run_is_an_error(quick: EvalProtocol) -> None:
    with pytest.raises(SuiteError, match="its reference raises RuntimeError"):
        examine(problem_of("return x @ x"), quick, find_device(DeviceClass.CPU))


def test_a_lost_device_is_an_error_of_the_device_and_not_of_the_problem(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(device: Device) -> None:
        raise DeviceLostError(f"device {device.id} computes no more")

    def undisturbed(device: Device) -> AbstractContextManager[None]:
        raise RuntimeError(f"CUDA error on {device.id}")

    monkeypatch.setattr(Device, "require_working", lost)
    monkeypatch.setattr(mutants, "undisturbed", undisturbed)
    with pytest.raises(DeviceLostError):
        examine(problem_of("torch.relu(x)"), quick, find_device(DeviceClass.CPU))


# --- too little memory ---------------------------------------------------------------------------

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total")


def _raising(error: Exception) -> Callable[..., object]:
    def raises(*_: object, **__: object) -> object:
        raise error

    return raises


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Oracle, "_examined"),
        (Oracle, "outputs"),
        (Oracle, "exact_key"),
        (Expected, "admits"),
        (mutations, "first_answer"),
        (torch, "equal"),
    ],
)
def test_too_little_memory_of_a_gpu_rejects_the_problem_wherever_it_shows(
    quick: EvalProtocol, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    monkeypatch.setattr(where, name, _raising(FULL))
    problem = problem_of(f"return torch.relu(x)  # {name}")
    with pytest.raises(SuiteError) as caught:
        examine(problem, quick, find_device(DeviceClass.CPU))
    said = f"{problem.key}: too large for cpu: CUDA out of memory; lower its sizes"
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("raise torch.OutOfMemoryError('CUDA out of memory. Tried')", "too large for cpu: CUDA"),
        ("raise MemoryError", "too large for cpu: MemoryError; lower its sizes"),
        ("torch.empty(1 << 55)", "too large for cpu: .*can't allocate memory"),
    ],
)
def test_a_model_that_lacks_memory_to_be_made_is_rejected(
    table: Table, init: str, said: str
) -> None:
    with pytest.raises(SuiteError, match=said) as caught:
        table("return torch.relu(x)", "torch.randn(16, 32)", init)
    assert lacks_memory(str(caught.value))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_check_that_lacks_memory_of_another_kind_rejects_the_problem(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(Expected, "admits", _raising(error))
    with pytest.raises(SuiteError, match="too large for the memory here") as caught:
        table("return torch.relu(x)")
    assert lacks_memory(str(caught.value))


FULL_HERE = "raise torch.OutOfMemoryError('CUDA out of memory')"
COUNTED = LINEAR + "\n        self.first = float(self.w.detach().sum())"


@pytest.mark.parametrize(
    ("where", "init"),
    [
        ("x.dtype == torch.float64", LINEAR),
        ("float(x.abs().max()) > 20", LINEAR),
        ("abs(float(self.w.detach().sum()) - self.first) > 0.1", COUNTED),
    ],
    ids=["in float64", "in a family", "with other weights"],
)
def test_a_reference_that_lacked_memory_leaves_no_traits(
    table: Table, where: str, init: str
) -> None:
    """Such traits would weaken its checks: fewer inputs, one set of weights."""
    forward = f"if {where}:\n            {FULL_HERE}\n        return x @ self.w"
    problem = problem_of(forward, init=init)
    with pytest.raises(SuiteError, match="too large for cpu: CUDA out of memory"):
        table(forward, "torch.randn(16, 32)", init)
    assert not [known for known in oracles._known if known[0] == problem.id]


def test_a_mutant_that_lacks_memory_does_not_count_as_one_that_does_not_apply(table: Table) -> None:
    """It is the mutant without the last operator."""
    forward = (
        f"y = torch.relu(x)\n        if (y < 0).any():\n            {FULL_HERE}\n        return y"
    )
    with pytest.raises(SuiteError, match="too large for cpu: CUDA out of memory"):
        table(forward)


def test_an_error_of_our_own_is_no_shortage_of_memory(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Expected, "admits", _raising(RuntimeError("shapes do not match")))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        table("return torch.relu(x)")


def test_tensors_that_filled_the_memory_are_freed_before_it_is_given_back(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    found: list[bool] = []

    def fills(_: Expected, output: torch.Tensor) -> bool:
        large = output.clone()
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory")

    def give_back(_: Device) -> None:
        found.extend(each() is None for each in held)

    monkeypatch.setattr(Expected, "admits", fills)
    monkeypatch.setattr(mutants, "_give_memory_back", give_back)
    with pytest.raises(SuiteError):
        table("return torch.relu(x)")
    assert found == [True]


# --- shortcuts change nothing --------------------------------------------------------------------

SEVERAL = {
    "softmax": ("return torch.softmax(x, dim=-1)", "torch.randn(128, 256)"),
    "weights": ("return torch.relu(x @ self.w)", "torch.randn(600, 32)", LINEAR),
    "integers": ("return x.argmax(dim=-1), x > 0", "torch.randn(64, 512)"),
    "loose": ("return torch.tanh(x) + 1e-9 * y", "torch.randn(128, 128), torch.randn(128, 128)"),
    "overflows": ("return torch.exp(x)", "3 * torch.randn(128, 128)"),
}


def _drawn_one_by_one(draws: Draws, seed: int, families: list[str]) -> Iterator[Draw]:
    return (draws.draw(seed, family) for family in families)


def _admits(expected: Expected, output: torch.Tensor) -> bool:
    compared = compare(output, expected._answer, expected._error)
    return compared.meets(expected._precision)


@pytest.mark.parametrize("contract", Contract)
@pytest.mark.parametrize("precision", [PrecisionClass.STRICT, PrecisionClass.HALF])
@pytest.mark.parametrize("kind", SEVERAL)
def test_a_table_equals_one_that_was_made_without_shortcuts(
    table: Table, kind: str, precision: PrecisionClass, contract: Contract
) -> None:
    """Without them, no family is settled early, each draw is made by itself, and outputs are
    compared to their end."""
    oracles._known.clear()
    quick_one = table(*SEVERAL[kind], precision=precision, contract=contract)
    oracles._known.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_examination, "SETTLED", float("inf"))
        patch.setattr(Draws, "variants", _drawn_one_by_one)
        patch.setattr(Expected, "admits", _admits)
        exact_key = Oracle.exact_key
        patch.setattr(Oracle, "exact_key", lambda self, draw, _: exact_key(self, draw))
        assert table(*SEVERAL[kind], precision=precision, contract=contract) == quick_one


def test_a_table_is_the_same_if_the_reference_is_known(quick: EvalProtocol) -> None:
    problem, device = problem_of(*SEVERAL["weights"]), find_device(DeviceClass.CPU)
    table, traits = examine(problem, quick, device)
    oracles._known.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "_examined", None)
        assert examine(problem, quick, device, traits) == (table, traits)
