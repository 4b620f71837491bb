"""Norms and largest deviations equal those of a slow loop, on each device that is here."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.oracle import parts
from cudal1.harness.oracle.deviations import LEAST_BOUND, distances, largest, packed

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _rows(
    seed: int, dtype: torch.dtype, length: int, gap: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and slightly different answers: three rows of each, with gaps between rows."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(3, length + gap, generator=generator).to(dtype)[:, :length]
    answers = (outputs.double() * 1.001).to(torch.float64 if seed % 2 else dtype)
    return outputs.to(device), answers.to(device)


@pytest.mark.parametrize("device", DEVICES)
@given(
    dtype=st.sampled_from(FLOATS),
    length=st.sampled_from([1, 7, 4096, 4097]),
    gap=st.integers(0, 3),
    seed=st.integers(0, 100),
    relative=st.floats(0, 0.1),
)
def test_each_row_is_measured_by_itself(
    device: str, dtype: torch.dtype, length: int, gap: int, seed: int, relative: float
) -> None:
    outputs, answers = _rows(seed, dtype, length, gap, device)
    absolute = [1e-3, 0.0, 2.0]
    sizes, off, farthest = distances(outputs, answers)
    found = largest(
        outputs,
        answers,
        absolute_N=torch.tensor(absolute, dtype=torch.float64, device=device),
        relative_N=torch.full((3,), relative, dtype=torch.float64, device=device),
    )
    for row in range(3):
        x, y = outputs[row].double().tolist(), answers[row].double().tolist()
        pairs = list(zip(x, y, strict=True))
        close = {"rel": 2e-3, "abs": 1e-6}
        assert sizes[row].item() == pytest.approx(math.hypot(*y), **close)
        assert off[row].item() == pytest.approx(math.hypot(*(a - b for a, b in pairs)), **close)
        assert farthest[row].item() == pytest.approx(max(abs(a - b) for a, b in pairs), **close)
        bounds = [max(LEAST_BOUND, absolute[row] + relative * abs(b)) for b in y]
        worst = max(abs(a - b) / bound for (a, b), bound in zip(pairs, bounds, strict=True))
        assert found[row].item() == pytest.approx(worst, **close)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lies", ["expanded", "every other", "by columns"])
def test_elements_of_a_row_may_lie_apart(device: str, lies: str) -> None:
    drawn, _ = _rows(5, torch.float32, 10_000, 0, device)
    outputs = {
        "expanded": drawn[:, :1].expand(3, 5000),
        "every other": drawn[:, ::2],
        "by columns": drawn[:, :5000].T.contiguous().T,
    }[lies]
    answers = drawn[:, 5000:]
    bounds = torch.full((3,), 1e-3, dtype=torch.float64, device=device)
    assert outputs.stride(1) != 1
    assert packed(outputs).stride(1) == 1
    for x, y in ((outputs, answers), (answers, outputs)):
        for mine, copied in zip(
            distances(x, y), distances(x.contiguous(), y.contiguous()), strict=True
        ):
            torch.testing.assert_close(mine, copied, rtol=1e-3, atol=0.0)
        found = largest(x, y, absolute_N=bounds, relative_N=bounds)
        expected = largest(x.contiguous(), y.contiguous(), absolute_N=bounds, relative_N=bounds)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("of_answer", [False, True])
def test_a_value_that_is_not_finite_is_within_no_bound_and_spoils_its_own_row_alone(
    device: str, value: float, of_answer: bool
) -> None:
    outputs, answers = _rows(0, torch.float32, 5000, 1, device)
    (answers if of_answer else outputs)[1, 4500] = value
    bounds = torch.full((3,), 1.0, dtype=torch.float64, device=device)
    sizes, off, farthest = distances(outputs, answers)
    found = largest(outputs, answers, absolute_N=bounds, relative_N=bounds)
    within = [bool(o <= s) and bool(w <= 1) for s, o, w in zip(sizes, off, found, strict=True)]
    assert [math.isfinite(far) for far in farthest.tolist()] == [True, False, True]
    assert [within[0], within[2]] == [True, True]
    assert not (within[1] and math.isfinite(sizes[1].item()))


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_parts_give_the_same_result_as_the_whole(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, answers = _rows(3, torch.float32, 5000, 1, "cpu")
    outputs[1, 4321] += value
    bounds = torch.tensor([1e-3, 1e-3, 1e-3], dtype=torch.float64)

    def found() -> torch.Tensor:
        worst = largest(outputs, answers, absolute_N=bounds, relative_N=bounds)
        return torch.stack([*distances(outputs, answers), worst])

    whole = found()
    monkeypatch.setattr(parts, "CPU_ELEMENTS", 3 * 700)
    torch.testing.assert_close(found(), whole, equal_nan=True, rtol=1e-12, atol=0.0)
