"""List pieces that define `Model`, `get_inputs` and `get_init_inputs` in odd ways."""

from __future__ import annotations

from typing import Any

from benchmarks.fuzz.pieces import Expected, Parts, Piece

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER


def _form(name: str, expected: Expected = EITHER, **parts: Any) -> Piece:
    replaces_class = "Net" not in parts.get("bind", "Net")
    replaces_draw = "get_inputs" in parts.get("bottom", "")
    return Piece(
        f"form: {name}", "form", Parts(**parts), expected, is_alone=replaces_class or replaces_draw
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
