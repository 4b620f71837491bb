"""Tests that execute every rule: correct options equal their pattern, wrong options do not."""

# ruff: noqa: E501 -- patterns and source text
from __future__ import annotations

import re

import pytest
import torch

from cudal1.problem import DeviceClass
from cudal1.suite.generator import FAMILIES, KNOBS, Family, generate
from cudal1.teachers import Kind, compose, places
from cudal1.teachers.rule import Rule
from cudal1.teachers.rules import RULES

VECTOR, SQUARE, MATRIX = "torch.randn(16)", "torch.randn(16, 16) / 4", "torch.randn(8, 16)"
LINEAR = "nn.Linear(16, 16)"
IMAGE = "torch.randn(2, 4, 6, 6)"
DEFAULTS = {
    "_x": MATRIX,
    "_y": MATRIX,
    "_a": MATRIX,
    "_b": VECTOR,
    "_w": VECTOR,
    "_s": VECTOR,
    "_p1": VECTOR,
    "_p2": VECTOR,
    "_q": MATRIX,
    "_k": MATRIX,
    "_v": MATRIX,
    "_m": VECTOR,
    "_lin": LINEAR,
    "_lin1": LINEAR,
    "_lin2": LINEAR,
    "_u": MATRIX,
    "_r": MATRIX,
    "_z": MATRIX,
    "_conv": "nn.Conv2d(4, 4, 3)",
}
SHAPES = {
    "diag_left": {"_s": "torch.randn(8)"},
    **{
        name: {"_w": SQUARE}
        for name in (
            "matmul_sum",
            "matmul_sum_flat",
            "matmul_mean",
            "explicit_linear",
            "einsum_matmul",
            "einsum_product",
        )
    },
    "low_rank": {"_u": "torch.randn(16, 4)", "_v": "torch.randn(4, 16)"},
    "reassociate": {"_b": SQUARE},
    "order_chain": {
        "_u": "torch.randn(16, 4)",
        "_v": "torch.randn(4, 6)",
        "_w": "torch.randn(6, 16)",
    },
    "repeated_product": {"_w": SQUARE},
    "long_order": {
        "_u": "torch.randn(16, 4)",
        "_v": "torch.randn(4, 6)",
        "_w": "torch.randn(6, 5)",
        "_z": "torch.randn(5, 16)",
    },
    "diag_of_product": {"_b": MATRIX},
    "trace_of_product": {"_b": "torch.randn(16, 8)"},
    "pairwise_square": {"_w": "torch.randn(5, 16)"},
    "conv_relu": {"_x": IMAGE},
    "instance_norm": {"_x": IMAGE},
    "channel_norm": {"_x": IMAGE},
    "batch_norm_inference": {
        "_x": IMAGE,
        **dict.fromkeys(("_m", "_w", "_b"), "torch.randn(4)"),
        "_v": "torch.rand(4) + 0.5",
    },
    "cumulative_row_sum": {},
    "expert_loop": {"_r": "torch.rand(8, 3)", "_w": "torch.randn(3, 16, 16)"},
}
NUMBERS = {
    "_e": 1e-05,
    "_c": 0.125,
    "_c1": 0.5,
    "_c2": 0.75,
    "_c3": 1.5,
    "_c4": 0.25,
    "_d": -1,
    "_l": -1,
    "_d1": 4,
    "_d2": 4,
    "_n": 3,
}
BY_PATTERN = {"_n1": 16}


def reference_of(rule: Rule, pattern: str) -> str:
    """Return a problem file; its forward is the pattern."""
    names = sorted(set(re.findall(r"\b_[a-z]+\d?\b", pattern)), key=len, reverse=True)
    attributes: list[str] = []
    arguments: dict[str, str] = {}
    body = pattern.strip()
    for name in names:
        if name in NUMBERS or name in BY_PATTERN:
            text = str(NUMBERS.get(name, BY_PATTERN.get(name)))
        else:
            made = SHAPES.get(rule.family, {}).get(name, DEFAULTS[name])
            is_input = name in {"_x", "_y", "_a", "_q", "_k"} or (
                name == "_v" and rule.family != "low_rank" and "norm" not in rule.family
            )
            text = f"in{name}" if is_input else f"self.p{name}"
            if is_input:
                arguments[text] = made
            else:
                attributes.append(
                    f"self.p{name} = {made}"
                    if made.startswith("nn.")
                    else f"self.p{name} = nn.Parameter({made})"
                )
        body = re.sub(rf"(?<!\w){name}\b", text, body)
    *before, last = body.split("\n")
    if "sum_of_loop([" in last:
        element, _, count = (
            last.removeprefix("sum_of_loop([").removesuffix(")])").partition(" for i in range(")
        )
        last = f"for i in range({count}):\n            y = y + {element}\n        return y"
        before.append("y = torch.zeros_like(in_x)")
    else:
        last = f"return {last}"
    lines = "\n        ".join([*before, last])
    init = "".join(f"\n        {line}" for line in attributes)
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__(){init}\n\n"
        f"    def forward(self, {', '.join(arguments)}):\n        {lines}\n\n\n"
        f"def get_inputs():\n    return [{', '.join(arguments.values())}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def failure(reference: str, candidate: str) -> str | None:
    """Return None when the candidate computes what the reference does; else the reason."""
    scope: dict[str, object] = {}
    exec(compile(reference, "reference", "exec"), scope)
    torch.manual_seed(1)
    initial = scope["get_init_inputs"]()  # type: ignore[operator]
    model = scope["Model"](*initial)  # type: ignore[operator]
    inputs = scope["get_inputs"]()  # type: ignore[operator]
    try:
        scope = {}
        exec(compile(candidate, "candidate", "exec"), scope)
        other = scope["ModelNew"](*initial)  # type: ignore[operator]
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            expected, result = (
                model(*(t.clone() for t in inputs)),
                other(*(t.clone() for t in inputs)),
            )
        if result.shape != expected.shape or result.dtype != expected.dtype:
            return f"{result.dtype} {tuple(result.shape)}, not {expected.dtype} {tuple(expected.shape)}"
        spread = (
            (expected - expected.mean()).abs().max() if expected.numel() > 1 else expected.abs()
        )
        error = (result - expected).abs().max() / (spread + 1e-6)
        return None if error < 1e-3 else f"error {error:.1e}"
    except Exception as error:  # noqa: BLE001 -- whatever a wrong rewrite raises is the result
        return repr(error)


def mislabelled(reference: str, families: set[str] | None = None) -> list[str]:
    """Return the options with disagreeing label and result."""
    found: list[str] = []
    all_places = places(reference)
    for number, place in enumerate(all_places):
        for index, option in enumerate(place.options):
            if families is not None and option.family not in families:
                continue
            choices: list[int | None] = [None] * len(all_places)
            choices[number] = index
            rewrite = compose(reference, choices)
            assert rewrite.choices[number].option == index, f"{option.name!r} could not be printed"
            source = rewrite.source
            reason = failure(reference, source)
            if (reason is None) == (option.kind is Kind.WRONG):
                found.append(f"{option.kind} {option.name!r}: {reason}\n{source}")
    return found


CASES = [(rule, pattern) for rule in RULES for pattern in rule.patterns]
SPECIAL = {"attention", "attention_unscaled", "head_loop", "sliced_heads"}


@pytest.mark.parametrize(
    ("rule", "pattern"), CASES, ids=[f"{r.family}-{n}" for n, (r, _) in enumerate(CASES)]
)
def test_a_rule_recognises_its_own_pattern(rule: Rule, pattern: str) -> None:
    if rule.family in SPECIAL:
        pattern = re.sub(r"(?<!\w)_s\b", "in_q.shape[1]", pattern)
    found = {
        option.family for place in places(reference_of(rule, pattern)) for option in place.options
    }
    assert rule.family in found


@pytest.mark.parametrize(
    "rule", [r for r in RULES if r.family not in SPECIAL], ids=lambda r: r.family
)
def test_a_rule_labels_its_options_right_and_wrong_correctly(rule: Rule) -> None:
    pattern = rule.patterns[0]
    assert mislabelled(reference_of(rule, pattern), {rule.family}) == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_generated_operation_has_a_rule_with_a_fast_form(family: object) -> None:
    source = generate(
        0, 0, device_class=DeviceClass.CPU, num_stages=1, families=[family.name]
    ).source  # type: ignore[attr-defined]
    kinds = {option.kind for place in places(source) for option in place.options}
    assert {Kind.FAST, Kind.WRONG} <= kinds


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_rewrites_of_a_generated_operation_match_their_labels(family: object) -> None:
    source = generate(
        3, 1, device_class=DeviceClass.CPU, num_stages=1, families=[family.name]
    ).source  # type: ignore[attr-defined]
    assert mislabelled(source) == []


@pytest.mark.parametrize("index", range(12))
def test_correct_rewrites_at_all_places_together_are_correct(index: int) -> None:
    source = generate(7, index, device_class=DeviceClass.CPU, num_stages=4).source
    for kind in (Kind.FAST, Kind.MID):
        chosen = [
            next((n for n, option in enumerate(place.options) if option.kind is kind), None)
            for place in places(source)
        ]
        rewritten = compose(source, chosen).source
        assert failure(source, rewritten) is None, rewritten


@pytest.mark.parametrize("family", KNOBS, ids=lambda family: family.name)
@pytest.mark.parametrize("index", range(4))
def test_the_forms_of_a_knob_are_correct_at_all_sizes_and_none_is_labelled_fast(
    family: Family, index: int
) -> None:
    source = generate(
        3, index, device_class=DeviceClass.CPU, num_stages=1, families=[family.name]
    ).source
    (place,) = places(source)
    assert place.families == (family.name,)
    assert {option.kind for option in place.options} == {Kind.MID, Kind.WRONG}
    assert mislabelled(source) == []
