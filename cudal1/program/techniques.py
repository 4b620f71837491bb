"""The techniques of a candidate, read from its source and its reference's.

A tag says what reachable code does that the reference's does not. Comments, unused definitions and
unused texts earn none. Rules are conservative: where a source does not say it plainly, there is no
tag. Coalesced access, occupancy and the use of registers are not read from a source at all. What
ran is the profiler's to say; a tag also stands for a path that a size or device did not take.

Source: CUDA-L1, section 4.6, and tables 10 to 14 (arXiv 2507.14111).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cudal1.files import source_files
from cudal1.files.python_file import parsed
from cudal1.program import kernel_techniques, weights
from cudal1.program.kernel_sources import Kernels, kernels_of
from cudal1.program.live import Live, live_code
from cudal1.program.operators import CONVOLUTIONS, PRODUCTS, operators
from cudal1.program.technique import Technique

NUM_CACHED = 1024
"""Number of pairs of sources with techniques that are known."""
_HALVES = frozenset(
    "float16 half bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz".split()
)
_NOT_IN_PLACE = frozenset(
    "requires_grad_ copy_ zero_ fill_ detach_ share_memory_ eval_ random_ normal_ uniform_ resize_ "
    "set_ retain_grad_ index_copy_ scatter_ masked_scatter_ bernoulli_ exponential_ put_".split()
)
"""Methods that write without reading what they write over, or do no arithmetic."""
_FACTORIES = frozenset(
    "arange linspace logspace ones zeros full eye tensor tril_indices triu_indices ones_like "
    "zeros_like full_like hann_window hamming_window".split()
)
_RECIPES: dict[str, tuple[tuple[str, ...], ...]] = {
    "silu": (("sigmoid",), ("mul",)),
    "gelu": (("erf", "tanh"), ("mul",)),
    "mish": (("tanh",), ("softplus", "log", "log1p"), ("mul",)),
    "glu": (("sigmoid",), ("mul",)),
    "hardswish": (("clamp", "relu6"), ("mul",)),
    "softplus": (("log", "log1p"), ("exp",)),
    "softmax": (("exp",), ("sum",)),
    "log_softmax": (("log", "logsumexp"), ("softmax", "exp", "sub")),
    "logsumexp": (("log",), ("exp",), ("sum",)),
    "logaddexp": (("log",), ("exp",), ("add",)),
    "addmm": (("matmul",), ("add",)),
    "addmv": (("matmul",), ("add",)),
    "addbmm": (("matmul",), ("add", "sum")),
    "baddbmm": (("matmul",), ("add",)),
    "linear": (("matmul", "einsum"), ("add",)),
    "addcmul": (("mul",), ("add",)),
    "addcdiv": (("div",), ("add",)),
    "lerp": (("mul",), ("add", "sub")),
    "layer_norm": (("mean",), ("div", "rsqrt", "sqrt")),
    "group_norm": (("mean",), ("div", "rsqrt", "sqrt")),
    "instance_norm": (("mean",), ("div", "rsqrt", "sqrt")),
    "batch_norm": (("mean",), ("div", "rsqrt", "sqrt")),
    "rms_norm": (("mean",), ("rsqrt", "sqrt"), ("mul", "div")),
    "normalize": (("norm", "sum"), ("div", "rsqrt")),
    "vector_norm": (("pow", "mul", "square"), ("mean", "sum")),
    "var_mean": (("var", "pow"), ("mean",)),
    "std_mean": (("sqrt",), ("mean",)),
    "cross_entropy": (("log_softmax",), ("nll_loss", "gather")),
    "mse_loss": (("sub",), ("pow", "square", "mul"), ("mean",)),
    "cdist": (("sub", "matmul"), ("sum", "norm", "pow")),
    "scaled_dot_product_attention": (("softmax", "multiheadattention", "exp"),),
    "lstm": (("sigmoid",), ("tanh",), ("linear", "matmul")),
    "gru": (("sigmoid",), ("tanh",), ("linear", "matmul")),
}
"""The operators that a fused one replaces: of each group, the reference has one kind at least."""


@dataclass(frozen=True)
class _Reference:
    """The facts of a reference that a candidate is compared with."""

    own: frozenset[Technique]
    operators: Counter[str]
    factories: frozenset[str]
    reduces_weights: bool
    reduces_operands: bool
    multiplies_weights_first: bool


@lru_cache(NUM_CACHED)
def techniques(source: str, reference: str) -> tuple[Technique, ...]:
    """Return the techniques of a candidate, in the order of the list; always the same.

    A source that does not parse, is too long or too deep, or has no `ModelNew`, has none.
    """
    try:
        live = _live(source, "ModelNew")
        if not live.called:
            return ()
        old = _reference(reference)
        kernels = kernels_of(live)
        found = set(_alone(live, kernels)) - old.own | set(_compared(live, kernels, old))
    except RecursionError:  # a source as deep is not read
        return ()
    return tuple(each for each in Technique if each in found)


@lru_cache(NUM_CACHED)
def _reference(source: str) -> _Reference:
    live = _live(source, "Model")
    return _Reference(
        own=frozenset(_alone(live, kernels_of(live))),
        operators=operators(live),
        factories=frozenset(map(_factory, live.called)) - {""},
        reduces_weights=weights.has_reduced_weights(live),
        reduces_operands=weights.has_reduced_operands(live),
        multiplies_weights_first=weights.multiplies_weights_first(live),
    )


def _live(source: str, entry: str) -> Live:
    body: list[ast.stmt] = []
    for text in source_files.split(source).values():
        tree = parsed(text)
        if tree is not None:
            body += tree.body
    return live_code(ast.Module(body, []), entry)


def _alone(live: Live, kernels: Kernels) -> Iterator[Technique]:
    """Yield techniques that a source shows by itself."""
    yield from kernel_techniques.of_kernels(kernels)
    for node in live.nodes:
        yield from _of_node(live, node)
    for node in live.called:
        yield from _of_called(node)
    yield from _graphs_and_streams(live)
    yield from weights.of_weights(live)
    if any(_switches_autograd_off(live, each) for each in _forwards(live)):
        yield Technique.NO_AUTOGRAD


def _of_node(live: Live, node: ast.AST) -> Iterator[Technique]:
    match node:
        case ast.Call():
            yield from _of_call(live, node)
        case ast.FunctionDef(decorator_list=[_, *_]):
            for each in node.decorator_list:
                yield from _of_callable(live, each)
        case ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=value)):
            setting = live.dotted(target).removeprefix("torch.backends.")
            if setting == "cudnn.benchmark" and value is True:
                yield Technique.LIBRARY_TUNING
            if setting.endswith(".allow_tf32") and value is True:
                yield Technique.TF32
            if setting.endswith("fp32_precision") and value == "tf32":
                yield Technique.TF32
        case ast.Attribute(attr="multi_processor_count"):
            yield Technique.LAUNCH_SHAPE
        case _:
            pass


def _of_callable(live: Live, node: ast.expr) -> Iterator[Technique]:
    """Yield techniques of a decorator, or of what is called."""
    call = node if isinstance(node, ast.Call) else None
    match live.dotted(node.func if isinstance(node, ast.Call) else node):
        case "torch.compile" if not _says(call, "disable", True) and not _says(
            call, "backend", "eager"
        ):
            yield Technique.TORCH_COMPILE
            if _says(call, "mode", "reduce-overhead"):
                yield Technique.CUDA_GRAPH
        case (
            "torch.jit.script"
            | "torch.jit.trace"
            | "torch.jit.freeze"
            | "torch.jit.optimize_for_inference"
            | "torch.jit.script_if_tracing"
            | "torch.jit.script_method"
        ):
            yield Technique.TORCH_SCRIPT
        case _:
            pass


def _of_call(live: Live, node: ast.Call) -> Iterator[Technique]:
    yield from _of_callable(live, node)
    name = live.dotted(node.func)
    if name.startswith("torch.nn.") and _says(node, "inplace", True):  # a module, made before
        yield Technique.IN_PLACE
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    last = name.rpartition(".")[2] or attribute
    if last == "set_float32_matmul_precision" and node.args:
        if isinstance(node.args[0], ast.Constant) and node.args[0].value in ("high", "medium"):
            yield Technique.TF32
    elif (last == "autocast" and not _says(node, "enabled", False)) or (
        attribute in ("half", "bfloat16") and not node.args and not name.startswith("torch.")
    ):
        yield Technique.HALF_PRECISION
    elif attribute in ("to", "type") or last in ("tensor", "empty", "zeros"):
        given = [*node.args, *(each.value for each in node.keywords if each.arg == "dtype")]
        if any(_is_half(live, each) for each in given):
            yield Technique.HALF_PRECISION
    if attribute != "is_contiguous" and any(
        each.arg == "memory_format" and "channels_last" in live.dotted(each.value)
        for each in node.keywords
    ):
        yield Technique.LAYOUT


def _says(call: ast.Call | None, name: str, value: object) -> bool:
    """Return whether a call has this constant for a parameter."""
    return call is not None and any(
        each.arg == name and isinstance(each.value, ast.Constant) and each.value.value == value
        for each in call.keywords
    )


def _is_half(live: Live, node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in _HALVES and live.dotted(node).startswith("torch.")
        case ast.Name(id=name):
            return any(
                isinstance(each, ast.Attribute) and _is_half(live, each)
                for each in live.named.get(name, ())
            )
        case _:
            return False


def _of_called(node: ast.AST) -> Iterator[Technique]:
    """Yield techniques of a node that runs in calls."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=value)):
            is_first = isinstance(value, ast.Attribute) and value.attr == "init"  # nn.init
            if re.fullmatch(r"[a-z]\w*[a-z0-9]_", name) and not (is_first or name in _NOT_IN_PLACE):
                yield Technique.IN_PLACE
            if name == "copy_" and isinstance(value, ast.Attribute | ast.Subscript):
                yield Technique.BUFFER_REUSE
        case ast.keyword(arg="inplace", value=ast.Constant(value=True)):
            yield Technique.IN_PLACE
        case ast.keyword(arg="out", value=value) if not isinstance(value, ast.Constant):
            yield Technique.BUFFER_REUSE
        case _:
            pass


def _graphs_and_streams(live: Live) -> Iterator[Technique]:
    calls = [live.dotted(node.func) for node in live.nodes if isinstance(node, ast.Call)]
    methods = {
        node.func.attr
        for node in live.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    is_captured = "torch.cuda.graph" in calls or "capture_begin" in methods
    if "torch.cuda.make_graphed_callables" in calls or (is_captured and "replay" in methods):
        yield Technique.CUDA_GRAPH
    made = {
        id(node)
        for node in live.nodes
        if isinstance(node, ast.Call) and live.dotted(node.func) == "torch.cuda.Stream"
    }
    # one stream beside a capture is where a graph is warmed up
    if "torch.cuda.stream" in calls and len(made) > is_captured:
        yield Technique.STREAMS


def _forwards(live: Live) -> Iterator[ast.FunctionDef]:
    for node in live.called:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            yield node


def _switches_autograd_off(live: Live, forward: ast.FunctionDef) -> bool:
    """Return whether a forward pass, or what it returns, is computed without autograd."""
    if any(_is_switch(live, each) for each in forward.decorator_list):
        return True
    own = list(_statements_of(forward))
    returned = {
        name.id
        for node in own
        if isinstance(node, ast.Return) and node.value is not None
        for name in ast.walk(node.value)
        if isinstance(name, ast.Name)
    }
    return any(
        isinstance(node, ast.Return)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in returned)
        for block in own
        if isinstance(block, ast.With)
        and any(_is_switch(live, each.context_expr) for each in block.items)
        for node in _statements_of(block)
    )


def _statements_of(code: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or block, without those of functions inside."""
    waiting = list(ast.iter_child_nodes(code))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _is_switch(live: Live, node: ast.expr) -> bool:
    func = node.func if isinstance(node, ast.Call) else node
    return live.dotted(func) in ("torch.no_grad", "torch.inference_mode")


def _compared(live: Live, kernels: Kernels, reference: _Reference) -> Iterator[Technique]:
    """Yield techniques that show only beside the reference."""
    old, new = reference.operators, operators(live)
    for fused, groups in _RECIPES.items():
        if new[fused] > old[fused] and all(any(old[kind] for kind in each) for each in groups):
            yield Technique.FUSED_OPERATOR
    if not kernels.has_any and _avoids_work(live, new, reference):
        yield Technique.ALGEBRA
    if kernels.names:
        left = operators(live, kernels.launchers)
        replaced = sum((old - left).values())
        if replaced > max(1, len(kernels.names)):
            yield Technique.FUSION
    made = {_factory(node) for node in live.made} - {_factory(node) for node in live.called}
    if made & reference.factories:
        yield Technique.PRECOMPUTED


def _avoids_work(live: Live, new: Counter[str], reference: _Reference) -> bool:
    """Return whether products or pools are fewer or of another kind, or sums come earlier."""
    old = reference.operators
    had, has = ({kind for kind in PRODUCTS if each[kind]} for each in (old, new))
    return bool(
        (had and not has)
        or (had & CONVOLUTIONS and (has - had) & CONVOLUTIONS)
        or 0 < new["max_pool"] < old["max_pool"]
        or 0 < new["avg_pool"] < old["avg_pool"]
        or (weights.has_reduced_weights(live) and not reference.reduces_weights)
        or (weights.has_reduced_operands(live) and not reference.reduces_operands)
        or (
            reference.multiplies_weights_first
            and new["matmul"] > old["matmul"]
            and not weights.multiplies_weights_first(live)
        )
    )


def _factory(node: ast.AST) -> str:
    """Return the name of the function that makes a tensor of constants; empty for other nodes."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
            return name if name in _FACTORIES else ""
        case _:
            return ""
