"""Compare the burst clock with plain timing of the same code.

python -m benchmarks.timing.fidelity [--device cuda] [--verdicts 3]

Honest variants of shipped problems, faster and slower ones, are judged. The median estimate of
`--verdicts` verdicts is compared with plain in-process timing of the same two modules
(`benchmarks.timing.plain`). For calls of 60 µs and longer the two must be within 2 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.common import chosen, judge, note, options, print_table, save, shipped
from benchmarks.timing.plain import plain
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem

ALLOWED = 0.02
SHORTEST_US = 60.0
"""Shortest call that the 2 % bound holds for, in µs; shorter calls are only shown."""


@dataclass(frozen=True)
class Case:
    """A variant of a shipped problem: its reference with one piece of text replaced."""

    name: str
    problem: str
    old: str = ""
    new: str = ""

    def source(self, problem: Problem) -> str:
        """Return the candidate; a whole problem file, as the reference is."""
        assert self.old in problem.source, f"{self.problem} has changed: no {self.old!r} in it"
        return problem.null_source.replace(self.old, self.new) if self.old else problem.null_source


SOFTMAX = """m = x.max(dim=-1, keepdim=True).values
        e = torch.exp(x - m)
        x = e / e.sum(dim=-1, keepdim=True)"""
LAYER_NORM = """mean = x.mean(dim=-1, keepdim=True)
        var = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + 1e-5)
        x = x * self.weight + self.bias"""
FUSED_LAYER_NORM = """x = torch.nn.functional.layer_norm(
            x, x.shape[-1:], self.weight, self.bias, 1e-5)"""
GELU = "0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))"
CLAMPS = """x = torch.clamp(x, min=-1.5)
        x = torch.clamp(x, max=1.5)"""
TWICE = """a = torch.sigmoid(x) * torch.tanh(x)
        b = torch.sigmoid(x) + torch.tanh(x)"""
ONCE = """s, t = torch.sigmoid(x), torch.tanh(x)
        a, b = s * t, s + t"""
ATTENTION = """m = s.max(dim=-1, keepdim=True).values
        e = torch.exp(s - m)
        p = e / e.sum(dim=-1, keepdim=True)"""
CASES = (
    Case("softmax, fused", "level1/03_softmax", SOFTMAX, "x = torch.softmax(x, dim=-1)"),
    Case("softmax, an extra pass", "level1/03_softmax", "return x\n", "return x * 1.0\n"),
    Case("layer norm, fused", "level1/04_layer_norm", LAYER_NORM, FUSED_LAYER_NORM),
    Case(
        "gelu, fused",
        "level1/07_gelu_tanh",
        GELU,
        'torch.nn.functional.gelu(x, approximate="tanh")',
    ),
    Case("silu, fused", "level1/08_silu", "x * torch.sigmoid(x)", "torch.nn.functional.silu(x)"),
    Case("silu, an extra pass", "level1/08_silu", "x * torch.sigmoid", "(x + 0.0) * torch.sigmoid"),
    Case("clamps, joined", "level1/12_clamp_chain", CLAMPS, "x = torch.clamp(x, -1.5, 1.5)"),
    Case("matmul, the same", "level1/13_matmul"),
    Case(
        "matmul, a copied operand",
        "level1/13_matmul",
        "torch.matmul(a, b)",
        "torch.matmul(a, b.t().contiguous().t())",
    ),
    Case("conv, the same", "level1/15_conv2d"),
    Case("conv, two extra passes", "level1/15_conv2d", "self.conv(x)", "self.conv(x).neg().neg()"),
    Case(
        "bmm, an extra pass", "level1/20_batched_matmul", "torch.bmm(a, b)", "torch.bmm(a, b) * 1.0"
    ),
    Case("linear, relu in place", "level2/13_linear_relu", "torch.relu", "torch.relu_"),
    Case("repeated terms, once", "level2/15_repeated_terms", TWICE, ONCE),
    Case(
        "attention, fused softmax",
        "level3/02_softmax_attention",
        ATTENTION,
        "p = torch.softmax(s, dim=-1)",
    ),
)


def main() -> None:
    """Measure, print a table, and write results/fidelity_DEVICE.json."""
    parser = options("fidelity", __doc__)
    parser.add_argument("--verdicts", type=int, default=3, help="on each case")
    given = parser.parse_args()
    device, protocol = chosen(given)
    problems = shipped(device)
    found: list[dict[str, Any]] = []
    with Pool(device, protocol) as pool:
        for case in CASES:
            problem = problems[case.problem]
            source = case.source(problem)
            verdicts = [judge(pool, problem, source) for _ in range(given.verdicts)]
            found.append(_seen(case, problem, source, verdicts))
            note(f"{case.name}: {', '.join(_row(found[-1])[3:])}")
            save(f"fidelity_{given.device}", given.out, device, protocol, cases=found)
    print_table(
        ["case", "reference us", "candidate us", "bursts", "plain", "apart", ""],
        [_row(case) for case in found],
    )


def _seen(case: Case, problem: Problem, source: str, verdicts: list[Any]) -> dict[str, Any]:
    seen = plain(problem.source, source, device=problem.device_class)
    timed = [v.measurement for v in verdicts if v.measurement is not None]
    bursts = median(m.speedup for m in timed) if timed else None
    return {
        "name": case.name,
        "problem": case.problem,
        "statuses": [v.status for v in verdicts],
        "reasons": sorted({v.reason for v in verdicts if v.reason}),
        "estimates": [m.speedup for m in timed],
        "bursts": bursts,
        "plain": seen.speedup,
        "off": None if bursts is None else bursts / seen.speedup - 1,
        "burst_reference_us": median(m.reference_us for m in timed) if timed else None,
        "burst_candidate_us": median(m.candidate_us for m in timed) if timed else None,
        "plain_reference_us": seen.reference_us,
        "plain_candidate_us": seen.candidate_us,
        "plain_ratios": seen.ratios,
    }


def _row(case: dict[str, Any]) -> list[str]:
    times = [f"{case['plain_reference_us']:.1f}", f"{case['plain_candidate_us']:.1f}"]
    if case["off"] is None:
        return [
            case["name"],
            *times,
            "none",
            f"{case['plain']:.4f}",
            "",
            "; ".join(case["reasons"]),
        ]
    is_short = min(case["plain_reference_us"], case["plain_candidate_us"]) < SHORTEST_US
    good = "short" if is_short else "within" if abs(case["off"]) <= ALLOWED else "APART"
    return [
        case["name"],
        *times,
        f"{case['bursts']:.4f}",
        f"{case['plain']:.4f}",
        f"{case['off']:+.2%}",
        good,
    ]


if __name__ == "__main__":
    main()
