"""Pieces of form: inputs, outputs, weights, names, and the text itself."""

from __future__ import annotations

from typing import Any

from benchmarks.fuzz.pieces import Expected, Parts, Piece
from benchmarks.fuzz.source import TEXTS

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER
PAIR = "given[0] + 2 * given[1]"


def _inputs(
    name: str, inputs: str, expected: Expected = EITHER, mix: str = "given[0]", **parts: Any
) -> Piece:
    return Piece(f"inputs: {name}", "inputs", Parts(inputs=inputs, mix=mix, **parts), expected)


DTYPES = {
    "float64": EITHER,
    "float16": EITHER,
    "bfloat16": EITHER,
    "int64": EITHER,
    "int32": EITHER,
    "int16": EITHER,
    "int8": EITHER,
    "uint8": EITHER,
    "bool": EITHER,
    "complex64": REFUSED,
    "complex32": REFUSED,
    "float8_e4m3fn": REFUSED,
    "uint16": REFUSED,
    "uint32": REFUSED,
    "uint64": REFUSED,
}
INPUTS = [
    _inputs("transposed", "[torch.randn(16, 8).t()]", JUDGED),
    _inputs(
        "channels last", "[torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]", JUDGED
    ),
    _inputs("permuted", "[torch.randn(4, 2, 16).permute(1, 0, 2)]", JUDGED),
    _inputs("expanded", "[torch.randn(8, 1).expand(8, 16)]", JUDGED),
    _inputs("windows", "[torch.randn(40).as_strided((8, 16), (1, 2))]", JUDGED),
    _inputs("a slice", "[torch.randn(8, 40)[:, 3:35:2]]", JUDGED),
    _inputs(
        "of one storage", "(lambda t: [t[:, :16], t[:, 16:]])(torch.randn(8, 32))", JUDGED, PAIR
    ),
    _inputs(
        "that overlap", "(lambda t: [t[:, :16], t[:, 8:24]])(torch.randn(8, 24))", JUDGED, PAIR
    ),
    _inputs("the same tensor twice", "[torch.randn(8, 16)] * 2", JUDGED, PAIR),
    _inputs(
        "a tensor and its transpose", "(lambda t: [t, t.t()])(torch.randn(8, 8))", JUDGED, PAIR
    ),
    _inputs("that want gradients", "[torch.randn(8, 16, requires_grad=True)]", JUDGED),
    _inputs("that are no leaves", "[torch.randn(8, 16, requires_grad=True) * 2]", JUDGED),
    _inputs("a Parameter", "[nn.Parameter(torch.randn(8, 16))]", JUDGED),
    _inputs("a scalar tensor", "[torch.randn(())]"),
    _inputs("one element", "[torch.randn(1, 1)]"),
    _inputs("empty", "[torch.randn(0, 16)]", REFUSED),
    _inputs("one of two empty", "[torch.randn(8, 16), torch.randn(0)]", REFUSED),
    _inputs("large", "[torch.randn(1 << 18)]", JUDGED),
    _inputs("of 12 dimensions", "[torch.randn(*[2] * 9, 1, 1, 1)]", JUDGED),
    _inputs("forty of them", "[torch.randn(8, 16) for _ in range(40)]", EITHER, "sum(given)"),
    *(
        _inputs(name, f"[(torch.randn(8, 16) * 9).to(torch.{name})]", expected)
        for name, expected in DTYPES.items()
    ),
    _inputs("sparse", "[torch.randn(8, 16).to_sparse()]", REFUSED, "given[0].to_dense()"),
    _inputs("CSR", "[torch.eye(8).to_sparse_csr()]", REFUSED, "given[0].to_dense()"),
    _inputs(
        "quantized",
        "[torch.quantize_per_tensor(torch.randn(8, 16), .1, 0, torch.qint8)]",
        REFUSED,
        "given[0].dequantize()",
    ),
    _inputs(
        "nested",
        "[torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])]",
        REFUSED,
        "given[0].to_padded_tensor(0.0)",
    ),
    _inputs("meta", "[torch.randn(8, 16, device='meta')]"),
    _inputs("a subclass", "[torch.randn(8, 16).as_subclass(type('T', (torch.Tensor,), {}))]"),
    _inputs(
        "conjugated", "[torch.randn(8, 16, dtype=torch.complex64).conj()]", REFUSED, "given[0].real"
    ),
    _inputs("negative views", "[torch._neg_view(torch.randn(8, 16))]"),
    _inputs(
        "inference tensors", "[x]", draw="with torch.inference_mode():\n    x = torch.randn(8, 16)"
    ),
    _inputs("with a number", "[torch.randn(8, 16), 2.5]", mix="given[0] * given[1]"),
    _inputs("with None", "[torch.randn(8, 16), None]"),
    _inputs("with a string", "[torch.randn(8, 16), 'mode']"),
    _inputs("with a list", "[torch.randn(8, 16), [torch.randn(8, 16)]]", mix="given[0]"),
    _inputs("with an object", "[torch.randn(8, 16), object()]"),
    _inputs("none", "[]", REFUSED, "torch.ones(8, 16)"),
    _inputs("None", "None", REFUSED),
    _inputs("a bare tensor", "torch.randn(8, 16)"),
    _inputs("a tuple", "(torch.randn(8, 16),)", JUDGED),
    _inputs("a generator", "(torch.randn(8, 16) for _ in range(1))"),
    _inputs("a dictionary", "{'given': torch.randn(8, 16)}"),
    _inputs("the same values always", "[torch.ones(8, 16)]", REFUSED),
    _inputs("a seed of their own", "[torch.randn(8, 16)]", REFUSED, draw="torch.manual_seed(5)"),
    _inputs("a shape that grows", "[torch.randn(8 + _draws, 16)]", REFUSED),
    _inputs("a shape that is drawn", "[torch.randn(8, int(torch.randint(2, 99, ())))]"),
    _inputs("a number that grows", "[torch.randn(8, 16)] * _draws", REFUSED, "sum(given)"),
    _inputs(
        "a dtype that alternates",
        "[torch.randn(8, 16).to((torch.float32, torch.float64)[_draws % 2])]",
    ),
    _inputs("NaN", "[torch.randn(8, 16) * float('nan')]", REFUSED),
    _inputs("with an infinity", "[x]", EITHER, draw="x = torch.randn(8, 16)\nx[0, 0] = 1e400"),
    _inputs(
        "from numpy",
        "[torch.from_numpy(n.random.randn(8, 16).astype('f4'))]",
        JUDGED,
        top="import numpy as n",
    ),
    _inputs(
        "from random",
        "[torch.tensor([[random.random()] * 16 for _ in range(8)])]",
        JUDGED,
        top="import random",
    ),
    _inputs("from the system", "[torch.tensor(list(os.urandom(128)), dtype=torch.float32)]"),
    _inputs(
        "a frozen buffer",
        "[torch.frombuffer(b, dtype=torch.float32)]",
        REFUSED,
        draw="b = bytes(range(64))",
    ),
    _inputs("huge", "[torch.randn(1 << 50)]", REFUSED),
    _inputs("a cached tensor", "[_kept]", REFUSED, top="_kept = torch.randn(8, 16)"),
    _inputs("drawn in place", "[_kept.normal_()]", top="_kept = torch.randn(8, 16)"),
]


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


def _weights(
    name: str,
    init: str,
    change: str,
    expected: Expected = EITHER,
    *,
    plain: bool = False,
    **parts: Any,
) -> Piece:
    return Piece(
        f"weights: {name}",
        "weights",
        Parts(init=init, change=change, **parts),
        expected,
        plain_only=plain,
    )


_W = "self.w = nn.Parameter(torch.randn(1))"
_LINEAR = "self.l = nn.Linear(16, 16)"
WEIGHTS = [
    _weights("a parameter", _W, "y = y * (2 + self.w)", JUDGED),
    _weights("a layer", _LINEAR, "y = self.l(y)", JUDGED, plain=True),
    _weights("a tied parameter", f"{_W}\nself.v = self.w", "y = y * (2 + self.w) + self.v", JUDGED),
    _weights(
        "tied layers",
        f"{_LINEAR}\nself.m = nn.Linear(16, 16)\nself.m.weight = self.l.weight",
        "y = self.m(torch.tanh(self.l(y)))",
        JUDGED,
        plain=True,
    ),
    _weights(
        "views of one another",
        f"{_W}\nself.register_buffer('v', self.w.data[:])",
        "y = y + self.w + self.v",
    ),
    _weights("a buffer", "self.register_buffer('b', torch.randn(1))", "y = y + self.b", JUDGED),
    _weights(
        "a buffer that is not kept",
        "self.register_buffer('b', torch.randn(1), persistent=False)",
        "y = y + self.b",
        JUDGED,
    ),
    _weights(
        "a buffer of integers",
        "self.register_buffer('b', torch.arange(3))",
        "y = y + self.b[1]",
        JUDGED,
    ),
    _weights("a buffer that is None", "self.register_buffer('b', None)", "", JUDGED),
    _weights(
        "a buffer that counts",
        "self.register_buffer('b', torch.zeros(()))",
        "self.b += 1\ny = y * 2",
    ),
    _weights("lazy", "self.l = nn.LazyLinear(16)", "y = self.l(y)", plain=True),
    _weights(
        "complex",
        "self.w = nn.Parameter(torch.randn(1, dtype=torch.complex64))",
        "y = y + self.w.real",
    ),
    _weights("half", "self.w = nn.Parameter(torch.randn(1).half())", "y = y + self.w"),
    _weights("float64", "self.w = nn.Parameter(torch.randn(1).double())", "y = y + self.w.float()"),
    _weights(
        "integers",
        "self.w = nn.Parameter(torch.arange(3), requires_grad=False)",
        "y = y + self.w[1]",
    ),
    _weights("empty", "self.w = nn.Parameter(torch.randn(0))", ""),
    _weights("scalar", "self.w = nn.Parameter(torch.randn(()))", "y = y + self.w", JUDGED),
    _weights(
        "strided",
        "self.w = nn.Parameter(torch.randn(16, 8).t())",
        "y = y + self.w",
        JUDGED,
        plain=True,
    ),
    _weights(
        "expanded",
        "self.w = nn.Parameter(torch.randn(1, 1).expand(8, 16))",
        "y = y + self.w",
        plain=True,
    ),
    _weights(
        "from numpy",
        "self.w = nn.Parameter(torch.tensor(n.random.randn(1)).float())",
        "y = y * (2 + self.w)",
        JUDGED,
        top="import numpy as n",
    ),
    _weights(
        "from random",
        "self.w = nn.Parameter(torch.tensor([random.random()]))",
        "y = y * (2 + self.w)",
        JUDGED,
        top="import random",
    ),
    _weights(
        "from the system",
        "self.w = nn.Parameter(torch.tensor([float(x) for x in os.urandom(1)]))",
        "y = y * (2 + self.w)",
        plain=True,
    ),
    _weights(
        "normalised (old)",
        "self.l = nn.utils.weight_norm(nn.Linear(16, 16))",
        "y = self.l(y)",
        plain=True,
        top="import warnings; warnings.simplefilter('ignore')",
    ),
    _weights(
        "normalised",
        "self.l = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))",
        "y = self.l(y)",
        JUDGED,
        plain=True,
    ),
    _weights(
        "spectral",
        "self.l = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))",
        "y = self.l(y)",
        plain=True,
    ),
    _weights(
        "pruned",
        "import torch.nn.utils.prune as p\n"
        "self.l = p.random_unstructured(nn.Linear(16, 16), 'weight', 0.3)",
        "y = self.l(y)",
        plain=True,
    ),
    _weights(
        "extra state",
        _W,
        "y = y + self.w",
        methods="def get_extra_state(self): return {'a': object}\n"
        "def set_extra_state(self, s): pass",
    ),
    _weights(
        "a list",
        "self.ws = nn.ParameterList([torch.randn(1) for _ in range(3)])",
        "y = y * (1 + sum(w for w in self.ws))",
    ),
    _weights(
        "a dictionary",
        "self.ws = nn.ParameterDict({'a_b': torch.randn(1)})",
        "y = y + self.ws['a_b']",
        JUDGED,
    ),
    _weights("a plain attribute", "self.t = torch.randn(1)", "y = y + self.t"),
    _weights("frozen", f"{_W}\nself.w.requires_grad = False", "y = y + self.w", JUDGED),
    _weights(
        "batch normalisation",
        "self.l = nn.BatchNorm1d(16)",
        "y = self.l(y) + y",
        JUDGED,
        plain=True,
    ),
    _weights("dropout", "self.l = nn.Dropout(0.5)", "y = self.l(y)"),
    _weights("a recurrent layer", "self.l = nn.GRU(16, 16)", "y = self.l(y)[0]", plain=True),
    _weights(
        "attention", "self.l = nn.MultiheadAttention(16, 2)", "y = self.l(y, y, y)[0]", plain=True
    ),
    _weights("meta", "self.w = nn.Parameter(torch.randn(1, device='meta'))", "y = y + self.w"),
    _weights(
        "NaN", "self.w = nn.Parameter(torch.tensor([float('nan')]))", "y = y + self.w", REFUSED
    ),
    _weights("a hook", "self.register_forward_hook(lambda m, i, o: o)", "", EITHER),
    _weights("a hook on the state", "self._register_state_dict_hook(lambda *a: None)", ""),
    _weights("a hook that raises", "self.register_load_state_dict_post_hook(lambda *a: 1 / 0)", ""),
    _weights(
        "names with odd signs",
        "self.register_parameter('ŵ', nn.Parameter(torch.randn(1)))",
        "y = y + getattr(self, 'ŵ')",
    ),
    _weights(
        "drawn at a call",
        "",
        "if not hasattr(self, 'w'):\n    self.w = nn.Parameter(torch.randn(1))\ny = y + self.w",
    ),
    _weights(
        "a module that is shared",
        f"{_LINEAR}\nself.m = self.l",
        "y = self.m(self.l(y))",
        JUDGED,
        plain=True,
    ),
    _weights("itself within", "self.__dict__['me'] = self", "", JUDGED),
    _weights("a cycle", "self._modules['me'] = self", ""),
    _weights("a lambda", "self.f = lambda t: t * 2", "y = self.f(y)", JUDGED),
    _weights("a generator", "self.g = torch.Generator()", "", EITHER),
    _weights("a lock", "import threading\nself.k = threading.Lock()", "", EITHER),
    _weights("an open file", "self.k = open(os.devnull)", "", EITHER),
]


def _form(name: str, expected: Expected = EITHER, **parts: Any) -> Piece:
    replaces_class = "Net" not in parts.get("bind", "Net")
    replaces_draw = "get_inputs" in parts.get("bottom", "")
    return Piece(
        f"form: {name}",
        "form",
        Parts(**parts),
        expected,
        is_alone=replaces_class or replaces_draw,
    )


FORMS = [
    _form("an alias", JUDGED, bind="Model = Net"),
    _form("a function", JUDGED, bind="def Model(*args):\n    return Net(*args)"),
    _form("a lambda", JUDGED, bind="Model = lambda *args: Net(*args)"),
    _form("a partial", JUDGED, bind="import functools\nModel = functools.partial(Net)"),
    _form("under a condition", JUDGED, bind="if N > 3:\n    Model = Net\nelse:\n    Model = None"),
    _form(
        "in a try", JUDGED, bind="try:\n    import no_such\nexcept ImportError:\n    Model = Net"
    ),
    _form("in a loop", JUDGED, bind="for _ in range(2):\n    class Model(Net):\n        pass"),
    _form("in a with", JUDGED, bind="with torch.no_grad():\n    class Model(Net): pass"),
    _form("by exec", JUDGED, bind="exec('''class Model(Net):\n    pass''')"),
    _form("by type", JUDGED, bind="Model = type('Model', (Net,), {})"),
    _form("by globals", JUDGED, bind="globals()['Model'] = Net"),
    _form("twice", JUDGED, bind="class Model: pass\nclass Model(Net): pass"),
    _form(
        "a metaclass", JUDGED, bind="class Meta(type): pass\nclass Model(Net, metaclass=Meta): pass"
    ),
    _form("slots", JUDGED, bind="class Model(Net):\n    __slots__ = ('a',)"),
    _form(
        "a dataclass",
        bind="import dataclasses\n@dataclasses.dataclass(eq=False)\n"
        "class Model(Net):\n    n: int = 3\n    def __post_init__(self): Net.__init__(self)",
    ),
    _form(
        "postponed annotations",
        JUDGED,
        head="from __future__ import annotations",
        top="import dataclasses, typing\n@dataclasses.dataclass\nclass D:\n"
        "    a: typing.ClassVar[int] = 1\n    b: int = 2",
    ),
    _form(
        "a protocol",
        JUDGED,
        top="import typing\n@typing.runtime_checkable\n"
        "class P(typing.Protocol):\n    def f(self): ...",
    ),
    _form(
        "a generic",
        bind="import typing\nclass Model(Net, typing.Generic[typing.TypeVar('T')]): pass",
    ),
    _form("abstract", JUDGED, bind="import abc\nclass Model(Net, abc.ABC): pass"),
    _form(
        "an abstract method",
        REFUSED,
        bind="import abc\nclass Model(Net, abc.ABC):\n"
        "    @abc.abstractmethod\n    def f(self): pass",
    ),
    _form("an enumeration", JUDGED, top="import enum\nclass E(enum.Enum):\n    A = 1"),
    _form(
        "Sequential",
        JUDGED,
        bind="class Model(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(Net(), nn.Tanh())",
    ),
    _form(
        "scripted",
        bind="class S(nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
        "Model = lambda: torch.jit.script(S())",
    ),
    _form("a scripted function", JUDGED, top="@torch.jit.script\ndef f(x):\n    return x * 2"),
    _form(
        "traced",
        bind="class S(nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
        "Model = lambda: torch.jit.trace(S(), torch.randn(8, 16))",
    ),
    _form(
        "a static forward",
        bind="class Model(nn.Module):\n    @staticmethod\n"
        "    def forward(x):\n        return x.sin()",
    ),
    _form(
        "a forward on the instance",
        bind="class Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.forward = lambda x: x.sin()",
    ),
    _form(
        "named arguments",
        JUDGED,
        bind="class Model(nn.Module):\n    def forward(self, x, *, k=2):"
        "\n        return x.sin() * k",
    ),
    _form("arguments", JUDGED, init_inputs="[3, 'a', None, [1.5, (2, 3)], {'k': True}]"),
    _form("a tuple of arguments", JUDGED, init_inputs="(3,)"),
    _form("a dictionary of arguments", init_inputs="{'a': 1}"),
    _form("positional and named arguments", init_inputs="[[3], {}]"),
    _form("a tensor as argument", init_inputs="[torch.ones(2)]"),
    _form("a function as argument", init_inputs="[len]", expected=REFUSED),
    _form("an infinity as argument", init_inputs="[float('inf')]"),
    _form("a large argument", init_inputs="['x' * 100_000]"),
    _form("a deep argument", init_inputs="[eval('[' * 80 + ']' * 80)]"),
    _form("a cyclic argument", give="a = []\na.append(a)", init_inputs="[a]"),
    _form(
        "an argument whose repr lies",
        top="class L(list):\n    def __repr__(self): return '[1]'",
        init_inputs="L([1, object()])",
    ),
    _form("None as arguments", init_inputs="None", expected=REFUSED),
    _form("no module", REFUSED, bind="class Model:\n    def __call__(self, x):\n        return x"),
    _form("None", REFUSED, bind="Model = None"),
    _form("a number", REFUSED, bind="Model = 3"),
    _form("returns a number", REFUSED, bind="Model = lambda: 3"),
    _form("an instance", REFUSED, bind="Model = Net()"),
    _form("missing", REFUSED, bind="# Model ModelNew"),
    _form("deleted", REFUSED, bind="Model = Net", bottom="del Model"),
    _form("without forward", REFUSED, bind="class Model(nn.Module): pass"),
    _form(
        "without super",
        REFUSED,
        bind="class Model(nn.Module):\n    def __init__(self):\n"
        "        self.l = nn.Linear(3, 3)\n    def forward(self, x): return x",
    ),
    _form(
        "a coroutine",
        REFUSED,
        bind="class Model(nn.Module):\n    async def forward(self, x): return x",
    ),
    _form(
        "a generator", REFUSED, bind="class Model(nn.Module):\n    def forward(self, x): yield x"
    ),
    _form("get_inputs a lambda", JUDGED, bottom="get_inputs = lambda: [torch.randn(8, 16)]"),
    _form(
        "get_inputs a partial",
        JUDGED,
        bottom="import functools\nget_inputs = functools.partial(get_inputs)",
    ),
    _form(
        "get_inputs a static method",
        JUDGED,
        bottom="class D:\n    @staticmethod\n"
        "    def draw(): return [torch.randn(8, 16)]\nget_inputs = D.draw",
    ),
    _form(
        "get_inputs an object",
        JUDGED,
        bottom="class D:\n    def __call__(self):\n"
        "        return [torch.randn(8, 16)]\nget_inputs = D()",
    ),
    _form(
        "get_inputs a class",
        bottom="class get_inputs(list):\n    def __init__(self):\n"
        "        super().__init__([torch.randn(8, 16)])",
    ),
    _form("get_inputs a generator", bottom="def get_inputs():\n    yield torch.randn(8, 16)"),
    _form(
        "get_inputs a coroutine",
        REFUSED,
        bottom="async def get_inputs(): return [torch.randn(8, 16)]",
    ),
    _form(
        "get_inputs with an argument",
        REFUSED,
        bottom="def get_inputs(n): return [torch.randn(8, 16)]",
    ),
    _form(
        "get_inputs cached",
        REFUSED,
        bottom="import functools\nget_inputs = functools.lru_cache(get_inputs)",
    ),
    _form("get_inputs missing", REFUSED, bottom="del get_inputs"),
    _form("get_init_inputs missing", REFUSED, bottom="del get_init_inputs"),
    _form("odd names", JUDGED, bottom="ﬁnal = 1\nλ = _ = __ = __dunder__ = 2\nmatch = case = type"),
    _form("shadows builtins", JUDGED, bottom="list = tuple = len = print = isinstance = None"),
    _form("shadows its imports", bottom="torch_ = torch\nnn = None"),
    _form("star imports", JUDGED, top="from torch import *\nfrom torch.nn import *"),
    _form("__all__", JUDGED, top="__all__ = ['Model']"),
    _form("a module's __getattr__", bottom="def __getattr__(name): raise ValueError(name)"),
    _form("a main block", JUDGED, bottom="if __name__ == '__main__':\n    raise SystemExit"),
    _form(
        "its own file",
        JUDGED,
        bottom="assert os.path.exists(__file__)\nimport inspect\nassert inspect.getsource(Net)",
    ),
    _form("its own module", JUDGED, bottom="assert sys.modules[__name__].Net is Net"),
    _form(
        "pickles itself",
        JUDGED,
        bottom="import pickle\nassert pickle.loads(pickle.dumps(Net)) is Net",
    ),
    _form("replaces its module", bottom="sys.modules[__name__] = None"),
    _form("imports a sibling", bottom="import sibling_of_it"),
    _form("imports the judge", JUDGED, bottom="import cudal1.errors, cudal1.problem"),
    _form(
        "a context variable", JUDGED, bottom="import contextvars\nV = contextvars.ContextVar('v')"
    ),
    _form("a coroutine that is not awaited", bottom="async def c(): pass\nc()"),
    _form("an import of everything", bottom="import tkinter, sqlite3, curses, readline"),
]

REFUSED_TEXTS = {
    "null byte",
    "nested 1000 deep",
    "empty",
    "a comment alone",
    "blank",
    "not UTF-8",
    "UTF-16",
    "cut off",
    "an open string",
    "unknown cookie",
}
UNSURE_TEXTS = {
    "CR",
    "latin-1 cookie",
    "latin-1 bytes",
    "a very long sum",
    "many lines",
    "a header of a file",
    "a header of a module",
    "form feeds",
}
TEXT_PIECES = [
    Piece(
        f"text: {name}",
        "text",
        Parts(text=(name,)),
        REFUSED if name in REFUSED_TEXTS else EITHER if name in UNSURE_TEXTS else JUDGED,
    )
    for name in TEXTS
]
