"""Rules for layers: the function behind a module, with scales and shifts folded into its weights.

The metavariable `_Conv2d` is a `nn.Conv2d` of self; `_Conv2dB` one that surely has a bias. Scaling
weights costs little beside scaling what they are applied to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cudal1.teachers.rule import Rule

_CHANNELS_LAST: Final = {"2d": "torch.channels_last", "3d": "torch.channels_last_3d"}


def _layers() -> Iterator[tuple[str, str, str, str]]:
    """Yield class, call with places for input, weight and bias, view of a scale, short name."""
    for dims in ("1d", "2d", "3d"):
        name, ones = f"Conv{dims}", ", 1" * (int(dims[0]) + 1)
        rest = f"_{name}.stride, _{name}.padding, _{name}.dilation, _{name}.groups"
        yield name, f"F.conv{dims}({{x}}, {{w}}, {{b}}, {rest})", f".view(-1{ones})", f"conv{dims}"
        name = f"ConvTranspose{dims}"
        rest = (
            f"_{name}.stride, _{name}.padding, _{name}.output_padding, _{name}.groups, "
            f"_{name}.dilation"
        )
        yield name, f"F.conv_transpose{dims}({{x}}, {{w}}, {{b}}, {rest})", "", f"deconv{dims}"
    yield "Linear", "F.linear({x}, {w}, {b})", ".view(-1, 1)", "linear"


def _of_layer(name: str, call: str, view: str, family: str) -> Iterator[Rule]:
    """Yield the rules of a layer with weights: its call, and what is folded into it."""
    weight, bias = f"_{name}.weight", f"_{name}.bias"
    plain = call.format(x="_x", w=weight, b=bias)
    other = f"torch.addmm({bias}, _x, {weight}.t())" if name == "Linear" else ""
    layout = _CHANNELS_LAST.get(name[-2:])
    if layout is not None:
        x, w = (f"{each}.contiguous(memory_format={layout})" for each in ("_x", weight))
        other = call.format(x=x, w=w, b=bias)
    yield Rule(
        f"{family}_call",
        (f"_{name}(_x)",),
        fast=(plain,),
        mid=(other,) if other and name != "Linear" else (),
        wrong=(
            call.format(x="_x", w=weight, b="None"),
            call.format(x="_x", w=f"-{weight}", b=bias),
        ),
    )
    with_bias = call.replace(f"_{name}.", f"_{name}B.")
    weight, bias = f"_{name}B.weight", f"_{name}B.bias"

    def folded(w: str, b: str) -> str:
        return with_bias.format(x="_x", w=w, b=b)

    yield Rule(
        f"{family}_scaled",
        (f"_{name}B(_x) * _c",),
        fast=(folded(f"{weight} * _c", f"{bias} * _c"),),
        mid=(f"_{name}B(_x).mul_(_c)",),
        wrong=(folded(f"{weight} * _c", bias), folded(weight, f"{bias} * _c")),
    )
    yield Rule(
        f"{family}_shifted",
        (f"_{name}B(_x) + _c",),
        fast=(folded(weight, f"{bias} + _c"),),
        mid=(f"_{name}B(_x).add_(_c)",),
        wrong=(folded(weight, bias), folded(f"{weight} + _c", bias)),
    )
    yield Rule(
        f"{family}_shifted_and_scaled",
        (f"(_{name}B(_x) + _c1) * _c2",),
        fast=(folded(f"{weight} * _c2", f"({bias} + _c1) * _c2"),),
        mid=(f"_{name}B(_x).add_(_c1).mul_(_c2)",),
        wrong=(folded(f"{weight} * _c2", f"{bias} + _c1"),),
    )
    yield Rule(
        f"{family}_biased",
        (f"_{name}B(_x) + _p",),
        fast=(folded(weight, f"{bias} + _p.flatten()"),),
        mid=(f"_{name}B(_x).add_(_p)",),
        wrong=(folded(weight, "_p.flatten()"), folded(weight, f"{bias} - _p.flatten()")),
    )
    yield Rule(
        f"{family}_unbiased",
        (f"_{name}B(_x) - _p",),
        fast=(folded(weight, f"{bias} - _p.flatten()"),),
        mid=(f"_{name}B(_x).sub_(_p)",),
        wrong=(folded(weight, f"{bias} + _p.flatten()"),),
    )
    if view:
        yield Rule(
            f"{family}_scaled_by_channel",
            (f"_{name}B(_x) * _p",),
            fast=(folded(f"{weight} * _p{view}", f"{bias} * _p.flatten()"),),
            mid=(f"_{name}B(_x).mul_(_p)",),
            wrong=(folded(f"{weight} * _p{view}", bias),),
        )


_CALLS: Final = {
    **{
        f"BatchNorm{dims}": "F.batch_norm(_x, {m}.running_mean, {m}.running_var, {m}.weight, "
        "{m}.bias, {m}.training, {m}.momentum, {m}.eps)"
        for dims in ("1d", "2d", "3d")
    },
    **{f"InstanceNorm{dims}": "F.instance_norm(_x, eps={m}.eps)" for dims in ("1d", "2d", "3d")},
    "GroupNorm": "F.group_norm(_x, {m}.num_groups, {m}.weight, {m}.bias, {m}.eps)",
    "LayerNorm": "F.layer_norm(_x, {m}.normalized_shape, {m}.weight, {m}.bias, {m}.eps)",
    **{
        f"MaxPool{dims}": f"F.max_pool{dims}(_x, {{m}}.kernel_size, {{m}}.stride, {{m}}.padding, "
        "{m}.dilation, {m}.ceil_mode)"
        for dims in ("1d", "2d", "3d")
    },
    **{
        f"AvgPool{dims}": f"F.avg_pool{dims}(_x, {{m}}.kernel_size, {{m}}.stride, {{m}}.padding, "
        "{m}.ceil_mode, {m}.count_include_pad)"
        for dims in ("1d", "2d", "3d")
    },
    **{
        f"AdaptiveAvgPool{dims}": f"F.adaptive_avg_pool{dims}(_x, {{m}}.output_size)"
        for dims in ("2d", "3d")
    },
    "LeakyReLU": "F.leaky_relu(_x, {m}.negative_slope)",
    "Hardtanh": "torch.clamp(_x, {m}.min_val, {m}.max_val)",
    "Softmax": "torch.softmax(_x, dim={m}.dim)",
    "Dropout": "F.dropout(_x, {m}.p, {m}.training)",
}
"""Functions behind the layers without foldable weights, by class; `{m}` is the layer."""
_WRONG: Final = {
    "BatchNorm": "F.batch_norm(_x, {m}.running_mean, {m}.running_var, {m}.weight, {m}.bias)",
    "InstanceNorm": "F.instance_norm(_x, eps=1.0)",
    "GroupNorm": "F.group_norm(_x, 1, {m}.weight, {m}.bias, {m}.eps)",
    "LayerNorm": "F.layer_norm(_x, _x.shape[1:])",
    "Dropout": "_x",
}
"""Mistakes that authors make with these layers, by the beginning of the class."""


def _of_call(name: str, call: str) -> Rule:
    module = f"_{name}"
    wrong = next((text for start, text in _WRONG.items() if name.startswith(start)), "_x * 0.5")
    return Rule(
        f"{name.lower()}_call",
        (f"{module}(_x)",),
        fast=(call.format(m=module),),
        wrong=(wrong.format(m=module),),
    )


def _pooled_twice(cls: str, dims: str) -> Rule:
    first, second, pool = f"_{cls}Pool{dims}1", f"_{cls}Pool{dims}2", f"F.{cls.lower()}_pool{dims}"
    return Rule(
        f"{cls.lower()}_pool{dims}_twice",
        (f"{second}({first}(_x))",),
        fast=(f"{pool}(_x, {first}.kernel_size * {second}.kernel_size)",),
        wrong=(f"{pool}(_x, {first}.kernel_size)",),
    )


_POOLED_TWICE: Final = tuple(
    _pooled_twice(cls, dims) for cls in ("Max", "Avg") for dims in ("2d", "3d")
)
"""Two windows without overlap or padding are one of their product."""

MODULES: Final = (
    *(rule for layer in _layers() for rule in _of_layer(*layer)),
    *(_of_call(name, call) for name, call in _CALLS.items()),
    *_POOLED_TWICE,
    Rule(
        "triplet_call",
        ("_TripletMarginLoss(_a, _b, _x)",),
        fast=("F.triplet_margin_loss(_a, _b, _x, margin=_TripletMarginLoss.margin)",),
        mid=(
            "torch.relu(F.pairwise_distance(_a, _b) - F.pairwise_distance(_a, _x) "
            "+ _TripletMarginLoss.margin).mean()",
        ),
        wrong=("F.triplet_margin_loss(_a, _x, _b, margin=_TripletMarginLoss.margin)",),
    ),
)
