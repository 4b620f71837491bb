"""Put other code around a generated problem's operations, as text for pretraining.

A policy that has only seen the generator's layout cannot copy anything else: it writes the
generator's constructor whatever it is shown. So most training text gets other names for sizes,
parameters and the input, constants below the class, a docstring, and statements of random
expressions that no rule rewrites. Such text is read, never run: shapes need not agree.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence

_SIZES = """dim hidden features channels width size in_features out_features length heads rank
    batch rows n m k d depth groups out""".split()
_ATTRIBUTES = """weight bias scale shift gain w b u v gate first second third linear proj up down
    out conv norm layers ih hh qkv query key value fc mean var router experts pool inner outer
    left right""".split()
_LOCALS = "y z h s p q r t u v g out res acc left right mean var e m a".split()
_INPUTS = "x x x x x x x inputs data batch_x".split()
_FUNCTIONS = "relu tanh sigmoid exp abs sqrt sin log square sign rsqrt log1p".split()
_REDUCTIONS = ("sum", "mean", "softmax")
_PAIRS = "matmul bmm minimum maximum add mul".split()
_METHODS = """sum(dim={d},keepdim=True) mean(dim={d},keepdim=True) mean(dim=(2,3),keepdim=True)
    sum(dim={d}) transpose(1,2) transpose(-2,-1) flatten(1) amax(dim={d})
    max(dim={d},keepdim=True).values unsqueeze({d}) view({v}.shape[0],-1) permute(0,2,1)
    clamp(min={c}) reshape(-1,{v}.shape[-1]) std(dim={d}) t() T softmax(dim={d}) contiguous()
    squeeze({d}) chunk({n},dim={d})[0] pow({n})""".split()
_MODULES = """nn.Linear({a},{b}) nn.Linear({a},{b},bias=False) nn.Linear({a},{n}*{a})
    nn.Linear({n}*{a},{a}) nn.Conv1d({a},{b},{n},padding={p}) nn.Conv2d({a},{b},{n},padding={p})
    nn.Conv2d({a},{a},{n},stride=2) nn.Conv3d({a},{b},{n},padding={p})
    nn.ConvTranspose2d({a},{b},{n},stride=2) nn.MaxPool2d({n}) nn.AvgPool2d({n},stride=2)
    nn.GroupNorm({n},{a}) nn.BatchNorm2d({a}) nn.LayerNorm({a}) nn.Dropout(0.0)
    nn.ConvTranspose3d({a},{b},{n},stride=2,padding={p})
    nn.Sequential(nn.Linear({a},{b}),nn.ReLU()) nn.MaxPool1d({n})
    nn.AdaptiveAvgPool2d(1)""".split()
_TENSORS = """torch.randn({a}) torch.randn({a},{b}) torch.randn({a},1,1) torch.ones({a})
    torch.zeros({a}) torch.randn({a},{b})/{a}**0.5 torch.rand({a})+0.5 torch.randn({a},{n},{b})
    torch.rand({a},1,1)+0.5""".split()
_NOUNS = """softmax matrix product rows features scale bias normalisation chain head convolution
    activation block layer sum attention step state gate clamp""".split()
_LINKS = (" with ", " and ", ", then ", " of ", " over ", " by ", " followed by ", " without ")


def surround(source: str, rng: random.Random) -> str:
    """Return a problem of the generator's layout in another frame."""
    init, forward = _parts(source)
    sizes = _names(rng, _SIZES)[: rng.choice((1, 1, 1, 2, 2, 3))]
    attributes = _names(rng, _ATTRIBUTES)
    text = "\n".join((*init, "", *forward))
    renamed = {
        old: attributes.pop() for old in dict.fromkeys(re.findall(r"self\.([a-z]+\d)\b", text))
    }
    forward = [_renamed(line, renamed) for line in forward]
    init = [_renamed(line, {**renamed, "columns": sizes[0], "rows": sizes[-1]}) for line in init]
    inputs = ["x"]
    if rng.random() < 0.75:
        filler = _Filler(rng, attributes, sizes)
        if rng.random() < 0.2:
            filler.values.append(rng.choice(("y", "mask", "other", "b")))
            inputs.append(filler.values[-1])
        before = filler.statements(rng.choice((0, 0, 0, 1, 2)))
        after = filler.statements(rng.choice((0, 1, 1, 2, 3)))
        if rng.random() < 0.25:
            init, forward = [], before + (after or filler.statements(1))
        else:
            forward = [*before, *forward, *after]
        init = [*filler.init, *init] if rng.random() < 0.5 else [*init, *filler.init]
    return _laid_out(rng, init, forward, inputs, sizes)


def _parts(source: str) -> tuple[list[str], list[str]]:
    """Return constructor and forward of the generator's layout, without indentation."""
    constructor, forward = source.split("super().__init__()")[1].split(
        "\n\n    def forward(self, x):\n"
    )
    body = forward.split("        return x\n")[0]
    return [line[8:] for line in constructor.split("\n") if line], [
        line[8:] for line in body.split("\n") if line
    ]


def _names(rng: random.Random, words: Sequence[str]) -> list[str]:
    """Return the words in random order, some with a digit or a second word."""
    plain = rng.random() < 0.6
    made = [
        word
        if plain or (draw := rng.random()) < 0.4
        else f"{word}{rng.randrange(10)}"
        if draw < 0.7
        else f"{word}_{rng.choice(words)}"
        for word in rng.sample(words, len(words))
    ]
    return list(dict.fromkeys(made))


def _renamed(text: str, names: dict[str, str]) -> str:
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    return pattern.sub(lambda match: names[match.group()], text) if names else text


class _Filler:
    """A generator of statements of random expressions, with modules and parameters of their own."""

    def __init__(self, rng: random.Random, attributes: list[str], sizes: Sequence[str]) -> None:
        self._rng = rng
        self._attributes = attributes
        self._sizes = sizes
        self._fresh = rng.sample(_LOCALS, len(_LOCALS))
        self._modules = _MODULES
        self.values = ["x"]
        self.init: list[str] = []

    def statements(self, count: int) -> list[str]:
        """Return `count` statements, in canonical spelling."""
        made = "\n".join(line for _ in range(count) for line in self._statement())
        return ast.unparse(ast.parse(made)).split("\n") if made else []

    def _statement(self) -> list[str]:
        rng, draw = self._rng, self._rng.random()
        if draw < 0.06 and len(self._fresh) > 2:
            return self._loop()
        if draw < 0.10 and len(self._attributes) > 2:
            layers = self._module("nn.ModuleList([{m} for _ in range({n})])")
            return [f"for layer in {layers}:", f"    x = {self._applied('layer(x)')}"]
        if draw < 0.14:
            size = rng.choice(self._sizes)
            self.init.append(f"self.{size} = {size}")
            return [f"x = x.view(x.shape[0], self.{size}, -1)"]
        if draw < 0.19 and len(self._fresh) > 3:
            three = [self._fresh.pop() for _ in range(3)]
            source = self._expression(1)
            self.values += three
            return [f"{', '.join(three)} = ({source}).chunk(3, dim=-1)"]
        value = self._expression(rng.choice((1, 1, 2, 2, 3)))
        if rng.random() < 0.6 or not self._fresh:
            return [f"x = {value}"]
        self.values.append(self._fresh.pop())
        return [f"{self.values[-1]} = {value}"]

    def _loop(self) -> list[str]:
        rng, variable = self._rng, self._rng.choice("itj")
        state, parts = self._fresh.pop(), self._fresh.pop()
        self.values.append(f"x[:, {variable}]")
        self._modules = _MODULES[:4]
        inner = self._expression(2)
        self._modules = _MODULES
        self.values.pop()
        if rng.random() < 0.5:
            return [
                f"{parts} = []",
                f"for {variable} in range(x.shape[1]):",
                f"    {state} = {inner}",
                f"    {parts}.append({self._applied(state)})",
                f"x = torch.{rng.choice(('stack', 'cat'))}({parts}, dim={rng.choice((0, 1))})",
            ]
        return [
            f"{state} = torch.zeros(x.shape[0], {rng.choice((16, 32, 64, 128))})",
            f"for {variable} in range(x.shape[1]):",
            f"    {state} = {inner} + {self._module('{m}')}({state})",
            f"x = {state}",
        ]

    def _expression(self, depth: int) -> str:
        rng = self._rng
        if depth == 0:
            return self._value()
        inner = self._expression(depth - 1)
        forms: tuple[tuple[int, Callable[[], str]], ...] = (
            (8, lambda: f"{self._module('{m}')}({inner})"),
            (7, lambda: self._applied(inner)),
            (6, lambda: f"({inner}).{self._method()}"),
            (6, lambda: f"({inner}) {rng.choice('+-*@/')} ({self._expression(depth - 1)})"),
            (4, lambda: f"({inner}) {rng.choice('+-*/')} {self._constant()}"),
            (1, lambda: f"{self._constant()} {rng.choice('+-*/')} ({inner})"),
            (1, lambda: f"({inner}) ** {rng.choice((2, 3))}"),
            (2, lambda: f"torch.{rng.choice(_PAIRS)}({inner}, {self._expression(depth - 1)})"),
            (2, lambda: f"torch.{rng.choice(_REDUCTIONS)}({inner}, dim={self._axis()})"),
            (1, lambda: f"torch.cat([{inner}, {self._value()}], dim={self._axis()})"),
            (1, lambda: self._blockwise(inner)),
            (1, lambda: f"torch.clamp({inner}, min={self._constant()}, max={self._constant()})"),
            (1, lambda: f"torch.nn.functional.{rng.choice(('gelu', 'silu', 'relu'))}({inner})"),
        )
        return rng.choices([f for _, f in forms], [weight for weight, _ in forms])[0]()

    def _applied(self, value: str) -> str:
        return f"torch.{self._rng.choice(_FUNCTIONS)}({value})"

    def _blockwise(self, value: str) -> str:
        return f"torch.cat([{self._applied('c')} for c in ({value}).split({self._count()})])"

    def _value(self) -> str:
        draw = self._rng.random()
        if draw < 0.1:
            return self._module("nn.Parameter({t})")
        if draw < 0.6:  # otherwise most would never be used
            return self.values[-1]
        return self._rng.choice(self.values)

    def _method(self) -> str:
        return self._rng.choice(_METHODS).format(
            d=self._axis(), v="x", c=self._constant(), n=self._rng.choice((2, 3, 4))
        )

    def _axis(self) -> int:
        return self._rng.choice((-1, -1, 0, 1, 1, 2))

    def _count(self) -> int:
        return self._rng.choice((2, 4, 8, 16, 32, 64))

    def _constant(self) -> str:
        rng = self._rng
        return repr(
            rng.choice((float(rng.randrange(1, 10)), rng.randrange(1, 100) / 100, 1e-5, 0.5))
        )

    def _module(self, form: str) -> str:
        """Return a new attribute: a module, a list of them, or a parameter."""
        rng = self._rng
        if not self._attributes:
            return "torch.relu"
        text = form.format(
            m=rng.choice(self._modules), t=rng.choice(_TENSORS), n=rng.choice(self._sizes)
        )
        numbers = {"n": rng.choice((2, 3, 4, 5)), "p": rng.choice((0, 1, 2))}
        text = text.format(a=rng.choice(self._sizes), b=rng.choice(self._sizes), **numbers)
        name = f"self.{self._attributes.pop()}"
        self.init.append(ast.unparse(ast.parse(f"{name} = {text}")))
        return name


def _laid_out(
    rng: random.Random,
    init: Sequence[str],
    forward: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
) -> str:
    """Return the whole file; constants stand before or after the class."""
    used = set(re.findall(r"\w+", "\n".join(init)))
    sizes = [name for name in dict.fromkeys(sizes) if name in used or rng.random() < 0.1]
    others = [name for name in rng.sample(_SIZES, 3) if name not in sizes]
    upper = rng.random() < 0.3
    shown = [
        name.upper() if upper else name for name in [*sizes, *others[: max(1, 2 - len(sizes))]]
    ]
    constants = [f"{name} = {_size(rng)}" for name in shown]
    shapes = [", ".join(rng.sample(shown, min(len(shown), 2))) for _ in inputs]
    own = rng.choice(_INPUTS)
    body = [_renamed(line, {"x": own}) for line in _returning(rng, forward)]
    model = [
        "class Model(nn.Module):",
        *([f'    """{_sentence(rng)}"""', ""] if rng.random() < 0.7 else []),
        f"    def __init__(self{''.join(f', {name}' for name in sizes)}):",
        f"        super({'Model, self' if rng.random() < 0.1 else ''}).__init__()",
        *(f"        {line}" for line in init),
        "",
        f"    def forward(self, {', '.join([own, *inputs[1:]])}):",
        *(f"        {line}" for line in body),
    ]
    functions = [
        "def get_inputs():",
        f"    return [{', '.join(f'torch.randn({shape})' for shape in shapes)}]",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(shown[: len(sizes)])}]",
    ]
    start = ["import torch", "import torch.nn as nn", ""]
    middle = [*constants, "", "", *model] if upper else ["", *model, "", "", *constants]
    text = "\n".join([*start, *middle, "", "", *functions, ""])
    return text.replace("1e-05", "1e-5") if rng.random() < 0.7 else text


def _returning(rng: random.Random, forward: Sequence[str]) -> list[str]:
    """Return the statements with a return: of x, or sometimes of the last statement's value."""
    if forward and forward[-1].startswith("x = ") and rng.random() < 0.3:
        return [*forward[:-1], "return " + forward[-1].removeprefix("x = ")]
    return [*forward, "return x"]


def _size(rng: random.Random) -> int:
    return rng.choice((rng.randrange(2, 64), 2 ** rng.randrange(3, 14), 32 * rng.randrange(1, 40)))


def _sentence(rng: random.Random) -> str:
    words = [rng.choice(_NOUNS)]
    for _ in range(rng.randrange(1, 4)):
        words += [rng.choice(_LINKS), rng.choice(_NOUNS)]
    return "".join(words).capitalize() + "."
