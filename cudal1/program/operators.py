"""The tensor operators that a source's calls run outside kernels of its own, by kind."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from cudal1.program.live import Live

CONVOLUTIONS = frozenset(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split()
)
"""Operators that convolve, apart from `convolution`, which may be any of them."""
PRODUCTS = CONVOLUTIONS | frozenset(
    "convolution matmul linear einsum bilinear lstm gru rnn multiheadattention "
    "scaled_dot_product_attention".split()
)
"""Operators that multiply matrices."""
_SAME = {
    **dict.fromkeys("mm bmm mv dot addmm addmv baddbmm addbmm addr outer inner".split(), "matmul"),
    **dict.fromkeys("subtract sub rsub".split(), "sub"),
    **dict.fromkeys("multiply mul".split(), "mul"),
    **dict.fromkeys("divide div true_divide".split(), "div"),
    **dict.fromkeys("amax max maximum fmax".split(), "max"),
    **dict.fromkeys("amin min minimum fmin".split(), "min"),
    **dict.fromkeys("clamp clip clamp_min clamp_max hardtanh".split(), "clamp"),
    **dict.fromkeys("batchnorm1d batchnorm2d batchnorm3d batch_norm".split(), "batch_norm"),
    **dict.fromkeys("instancenorm1d instancenorm2d instancenorm3d".split(), "instance_norm"),
    "layernorm": "layer_norm",
    "groupnorm": "group_norm",
    "rmsnorm": "rms_norm",
    "logsoftmax": "log_softmax",
    "leakyrelu": "leaky_relu",
    "vector_norm": "norm",
    "softmax2d": "softmax",
    **{f"convtranspose{n}d": f"conv_transpose{n}d" for n in (1, 2, 3)},
    **{f"{kind}pool{n}d": f"{kind}_pool" for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": f"{kind}_pool" for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive{k}pool{n}d": f"{k}_pool" for k in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_{k}_pool{n}d": f"{k}_pool" for k in ("max", "avg") for n in (1, 2, 3)},
}
"""Kinds of operators by their other names."""
FUSED = frozenset(
    "addmm addmv baddbmm addbmm addr addcmul addcdiv lerp silu gelu mish softplus softmax "
    "log_softmax logsumexp layer_norm group_norm instance_norm batch_norm rms_norm normalize "
    "scaled_dot_product_attention linear vector_norm std var_mean std_mean cross_entropy lstm gru "
    "hardswish logaddexp cdist mse_loss glu".split()
)
"""Operators that may do the work of several others; counted under their own names as well."""
KINDS = (
    frozenset(
        "add sub mul div pow exp exp2 expm1 log log1p log2 sqrt rsqrt square reciprocal abs sign "
        "neg sin cos tan tanh sigmoid relu elu selu leaky_relu relu6 softsign hardsigmoid erf "
        "clamp max min sum mean prod var norm cumsum cumprod argmax argmin sort topk where "
        "masked_fill gather scatter scatter_add index_select embedding cat stack flip roll tril "
        "triu diag diag_embed dropout max_pool avg_pool fold unfold pad interpolate one_hot any "
        "all nll_loss kl_div huber_loss smooth_l1_loss tripletmarginloss cosine_similarity "
        "repeat_interleave floor round remainder".split()
    )
    | PRODUCTS
    | FUSED
)
"""Kinds of operators that are counted; views, casts and new tensors are not."""
_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_NUMBERS = frozenset(
    "shape size dim ndim numel len stride element_size dtype device is_cuda range int is_contiguous"
    " get_device_properties data_ptr".split()
)
"""Attributes and functions with a value that is no tensor."""


def operators(live: Live, launchers: frozenset[str] = frozenset()) -> Counter[str]:
    """Return how often each kind of operator stands in the code that runs in calls.

    Args:
        live: the reachable code.
        launchers: names that call a kernel. What runs only where no kernel does is left out.
    """
    found: Counter[str] = Counter()
    called = {id(node) for node in live.called}
    skipped = _fallbacks(live, launchers) if launchers else set()
    inputs = input_names(live)
    modules: set[str] = set()
    for node in live.called:
        if id(node) in skipped:
            continue
        match node:
            case ast.BinOp(op=op) if type(op) in _SYMBOLS and has_input(node, inputs):
                found[_SYMBOLS[type(op)]] += 1
            case ast.AugAssign(op=op, target=target) if type(op) in _SYMBOLS:
                found[_SYMBOLS[type(op)]] += has_input(target, inputs)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if isinstance(node.func, ast.Name):
                    name = live.full.get(name, "").rpartition(".")[2]
                elif name in live.kept and not live.dotted(node.func).startswith("torch."):
                    # a module, such as self.softmax, or a function of its own
                    continue
                for kind in kinds_of(name):
                    found[kind] += 1
            case _:
                pass
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            modules.add(node.attr)
    for name in sorted(modules):
        for value in live.kept.get(name, ()):
            if id(value) not in called:
                found += modules_in(live, value)
    return found


def kinds_of(name: str) -> Iterator[str]:
    """Yield the kinds under which an operator is counted; none for anything else."""
    plain = name.lower().rstrip("_")
    if plain in _SAME:
        yield _SAME[plain]
    if plain in KINDS and plain != _SAME.get(plain):
        yield plain


def modules_in(live: Live, value: ast.expr) -> Counter[str]:
    """Return the kinds of the modules of torch.nn that an expression makes."""
    found: Counter[str] = Counter()
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = live.dotted(node.func)
            if name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper():
                found.update(kinds_of(name.rpartition(".")[2]))
    return found


def input_names(live: Live) -> frozenset[str]:
    """Return variables that may hold what is computed from a call's inputs."""
    names: set[str] = set()
    for node in live.called:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names.update(each.arg for each in parameters if each.arg not in ("self", "ctx", "cls"))
    bindings = [
        (target, node.value)
        for node in live.called
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    bindings += [
        (node.target, node.iter)
        for node in live.called
        if isinstance(node, ast.For | ast.comprehension)
    ]
    for _ in range(4):  # a chain of assignments is followed in its order, loops a few times
        size = len(names)
        for target, value in bindings:
            if has_input(value, names):
                names.update(e.id for e in ast.walk(target) if isinstance(e, ast.Name))
        if len(names) == size:
            break
    return frozenset(names)


def has_input(node: ast.AST, names: frozenset[str] | set[str]) -> bool:
    """Return whether an expression computes with one of these variables, not with its sizes."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        match each:
            case ast.Attribute(attr=name) if name in _NUMBERS:
                continue
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _NUMBERS:
                continue
            case ast.Name(id=name) if name in names:
                return True
            case _:
                waiting += ast.iter_child_nodes(each)
    return False


def _fallbacks(live: Live, launchers: frozenset[str]) -> set[int]:
    """Return nodes that run only where no kernel does."""
    skipped: set[int] = set()
    for node in live.called:
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                for dead in _beside_kernels(body, launchers):
                    skipped.update(id(each) for each in ast.walk(dead))
    return skipped


def _beside_kernels(body: Sequence[ast.stmt], launchers: frozenset[str]) -> Iterator[ast.stmt]:
    """Yield statements of a body that a kernel's path passes by."""
    for number, node in enumerate(body):
        rest = body[number + 1 :]
        if isinstance(node, ast.If):
            chosen, other = _launches(node.body, launchers), _launches(node.orelse, launchers)
            if chosen and not other:
                yield from node.orelse
                if _returns(node.body):
                    yield from rest
                    return
            elif not chosen and (other or (_returns(node.body) and _launches(rest, launchers))):
                yield from node.body
        elif isinstance(node, ast.Try) and _launches(node.body, launchers) and _returns(node.body):
            yield from rest
            return


def _launches(body: Sequence[ast.stmt], launchers: frozenset[str]) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in launchers)
        or (isinstance(each, ast.Attribute) and each.attr in launchers)
        for node in body
        for part in _own_work(node)
        for each in ast.walk(part)
    )


def _own_work(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement runs; of a choice, the chosen parts without the condition."""
    if isinstance(node, ast.If):
        yield from (*node.body, *node.orelse)
    else:
        yield node


def _returns(body: Sequence[ast.stmt]) -> bool:
    """Return whether the last statement of a body leaves the function."""
    last = body[-1] if body else None
    match last:
        case ast.Return():
            return True
        case ast.If(body=first, orelse=second):
            return _returns(first) and _returns(second)
        case ast.Try(body=inner) | ast.With(body=inner):
            return _returns(inner)
        case _:
            return False
