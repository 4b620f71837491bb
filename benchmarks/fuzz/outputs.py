"""List pieces of results of `forward`."""

from __future__ import annotations

from typing import Any

from benchmarks.fuzz.pieces import Expected, Parts, Piece

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER


def _result(
    name: str,
    result: str,
    expected: Expected = EITHER,
    *,
    is_function: bool = True,
    plain: bool = False,
    **parts: Any,
) -> Piece:
    return Piece(
        f"output: {name}",
        "output",
        Parts(result=result, **parts),
        expected,
        is_function=is_function,
        plain_only=plain,
    )


RESULTS = [
    _result("a tuple", "(y,)", JUDGED),
    _result("a list", "[y, y * 2]", JUDGED),
    _result("the same twice", "(y, y)", JUDGED),
    _result("twenty", "[y + i for i in range(20)]", JUDGED),
    _result("a dictionary", "{'y': y}", REFUSED),
    _result(
        "a dataclass",
        "Out(y)",
        REFUSED,
        top="from dataclasses import dataclass\n@dataclass\nclass Out:\n    y: object",
    ),
    _result(
        "a named tuple",
        "Out(y)",
        top="import collections\nOut = collections.namedtuple('Out', 'y')",
    ),
    _result("an iterator", "iter([y])", REFUSED),
    _result("None", "None", REFUSED),
    _result("a number", "float(y.sum())", REFUSED),
    _result("a numpy array", "y.detach().numpy()", REFUSED),
    _result("a string", "'said'", REFUSED),
    _result("an object", "object()", REFUSED),
    _result(
        "a class that raises for everything",
        "Evil()",
        REFUSED,
        top="class Evil:\n    def __getattribute__(self, n): raise ValueError(n)\n"
        "    def __repr__(self): raise ValueError()",
    ),
    _result("with None", "(y, None)", REFUSED),
    _result("with a number", "(y, 3)", REFUSED),
    _result("nested", "(y, (y, y))", REFUSED),
    _result("nothing", "()", REFUSED),
    _result("sparse", "y.to_sparse()", REFUSED),
    _result("complex", "torch.complex(y.float(), y.float())", REFUSED),
    _result("complex views", "torch.view_as_real(torch.complex(y.float(), y.float()))", JUDGED),
    _result("quantized", "torch.quantize_per_tensor(y.float(), .1, 0, torch.qint8)", REFUSED),
    _result(
        "a nested tensor", "torch.nested.nested_tensor([y.flatten(), y.flatten()[:3]])", REFUSED
    ),
    _result("empty", "y[:0]", REFUSED, plain=True),
    _result("with an empty one", "(y, y[:0])", REFUSED, plain=True),
    _result("a scalar tensor", "y.sum()"),
    _result("expanded", "y[:, :1].expand(8, 16)", JUDGED, plain=True),
    _result("transposed", "y.transpose(0, -1)", JUDGED, plain=True),
    _result("overlapping windows", "y.flatten().as_strided((20, 5), (2, 1))", JUDGED, plain=True),
    _result("a view of an input", "given[0].flatten()[1:]", JUDGED, plain=True),
    _result("an input itself", "given[0]"),
    _result("an input and more", "(y, given[0])"),
    _result("an input changed in place", "given[0].mul_(2)"),
    _result("an input changed and another output", "y", enter="given[0].mul_(2)"),
    _result("of another class", "nn.Parameter(y)"),
    _result("half", "y.half()"),
    _result("float64", "y.double()", JUDGED),
    _result("integers", "(y * 100).long()"),
    _result("signs", "y > 0"),
    _result("uint16", "(y * 100 + 200).to(torch.uint16)", REFUSED),
    _result("float8", "y.to(torch.float8_e4m3fn)", REFUSED),
    _result(
        "a shape that follows the data",
        "y.flatten()[: 2 + int(y.float().sum() * 1e4) % 97]",
        plain=True,
    ),
    _result("what is positive", "y[y > 0]", REFUSED, plain=True),
    _result("what is nonzero", "(y > 0.3).nonzero()", REFUSED, plain=True),
    _result("unique values", "torch.unique(y.round())"),
    _result("fewer on large inputs", "y[:4] if given[0].abs().max() > 50 else y", plain=True),
    _result("a dtype that follows the data", "y.double() if y.sum() > 0 else y"),
    _result("a dtype on a family", "y.double() if given[0].abs().max() > 50 else y"),
    _result("a number that follows the data", "[y] * (1 + int(y.float().abs().sum() * 1e4) % 7)"),
    _result("another kind on a family", "None if given[0].abs().max() > 50 else y"),
    _result("NaN on a family", "y * float('nan') if given[0].abs().max() > 50 else y"),
    _result("the call's number", "y + _calls", REFUSED, is_function=False),
    _result("another after ten calls", "y + (_calls > 10)", is_function=False),
    _result("another after 200 calls", "y + (_calls > 200)", is_function=False),
    _result(
        "a shape that changes after ten calls", "y if _calls < 10 else y[:1]", is_function=False
    ),
    _result("random", "torch.rand_like(y.float())", REFUSED, is_function=False),
    _result("random by the system", "y + os.urandom(1)[0]", is_function=False),
    _result("the time", "y + time.time() % 1", is_function=False, top="import time"),
    _result("seeded within", "torch.rand_like(y.float()) + y", enter="torch.manual_seed(0)"),
    _result("constant", "torch.zeros(8, 16)", REFUSED),
    _result("nearly constant", "1 + y * 1e-6", REFUSED),
    _result("NaN", "y * float('nan')", REFUSED),
    _result("infinite", "y / 0.0", REFUSED),
    _result("large numbers", "y * 1e30"),
    _result("small numbers", "y * 1e-30"),
    _result("denormal numbers", "y * 1e-40"),
    _result("a difference of large ones", "(y + 1e8) - 1e8"),
    _result("sorted", "y.flatten().sort()"),
    _result("ties", "y.round().topk(1)"),
    _result("an inverse", "torch.linalg.inv(y[:, :8])", plain=True),
    _result("a Cholesky factor", "torch.linalg.cholesky(y @ y.t() + 8 * torch.eye(8))", plain=True),
    _result("a lookup", "torch.arange(99.0)[given[0].abs().long()] + y", plain=True),
    _result(
        "with gradients",
        "torch.autograd.grad(torch.tanh(z).sum(), z)[0]",
        enter="torch.set_grad_enabled(True)\nz = given[0].detach().clone().requires_grad_()",
    ),
]
