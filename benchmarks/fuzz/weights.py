"""List pieces of parameters, buffers and modules."""

from __future__ import annotations

from typing import Any

from benchmarks.fuzz.pieces import Expected, Parts, Piece

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER


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
