"""Problem files that must be refused, each with a part of its reason; a name says what is wrong."""

from __future__ import annotations

from textwrap import indent

WHOLE = """import torch
import torch.nn as nn
{top}

class Model({base}):
    def __init__(self, *_):
        super().__init__()
        self.calls = 0

    def forward(self, {arguments}):
{forward}


def get_inputs():
    return {inputs}


def get_init_inputs():
    return {init_inputs}
"""


def source(
    forward: str = "return torch.relu(x)",
    *,
    top: str = "",
    base: str = "nn.Module",
    arguments: str = "x",
    inputs: str = "[torch.randn(8, 8)]",
    init_inputs: str = "[]",
) -> str:
    """Return a problem file made of these parts."""
    return WHOLE.format(
        top=top,
        base=base,
        arguments=arguments,
        forward=indent(forward, " " * 8),
        inputs=inputs,
        init_inputs=init_inputs,
    )


SLEEP = "import os, time\ntime.sleep(600)\nreturn x"
HANGING: dict[str, str] = {
    "hangs": source(SLEEP),
    "hangs at import": source(top="import time\ntime.sleep(600)"),
    "hangs with all files closed": source(f"import os\nos.closerange(3, 256)\n{SLEEP}"),
}

TWO = {"arguments": "x, y", "inputs": "[torch.randn(8, 8), torch.randn(8, 8)]"}

BAD: dict[str, tuple[str, str]] = {
    "constant output": (source("return x * 0.0 + 3.0"), "the output is constant"),
    "nothing but rounding errors": (
        source("return (x - x.mean(dim=0)).mean(dim=0)", inputs="[torch.randn(7, 8)]"),
        "from the same in float64, so nothing can be told",
    ),
    "integers that are rounding errors": (
        source(
            "return ((x - x.mean(dim=0)).mean(dim=0) * 1e9).long()", inputs="[torch.randn(7, 800)]"
        ),
        "from the same in float64, so nothing can be told",
    ),
    "nearly constant output": (source("return torch.sigmoid(x * 0.001)"), "the output is constant"),
    "ignores all inputs": (
        source("return torch.arange(64.0).view(8, 8)"),
        "the output does not depend on the inputs",
    ),
    "ignores one input": (source(**TWO), "the output does not depend on input 1"),
    "hardly uses one input": (
        source("return x + 1e-4 * y", **TWO),
        "the output does not depend on input 1",
    ),
    "fixed inputs": (source(inputs="[torch.ones(8, 8)]"), "the same values whatever the seed"),
    "raises": (source("raise ValueError('wrong\\n shape')"), "raises ValueError: wrong shape"),
    "raises at import": (source(top="raise KeyError('gone')"), "raises KeyError: 'gone'"),
    "raises what is no Exception": (source("raise KeyboardInterrupt"), "raises KeyboardInterrupt"),
    "crashes": (source("import os\nos.kill(os.getpid(), 11)\nreturn x"), "crashes (SIGSEGV)"),
    "leaves": (source("raise SystemExit(7)"), "ends its process (exit status 7)"),
    "crashes and leaves a child": (
        source("import os, time\nos.fork() or time.sleep(600)\nos.kill(os.getpid(), 11)\nreturn x"),
        "crashes (SIGSEGV)",
    ),
    "fills memory": (source("return x + torch.ones(1 << 36).sum()"), "raises RuntimeError"),
    "too slow": (source("import time\ntime.sleep(0.3)\nreturn torch.relu(x)"), "too slow: "),
    "random output": (source("return x + torch.rand_like(x)"), "gives different outputs"),
    "counts its calls": (
        source("self.calls += 1\nreturn x + self.calls"),
        "gives different outputs",
    ),
    "changes its shape": (
        source("self.calls += 1\nreturn x.repeat(1, self.calls)"),
        "gives different outputs",
    ),
    "not a number": (source("return torch.log(x)"), "an output holds NaN or infinity"),
    "a list as output": (source("return x.tolist()"), "an output is of type list, not a tensor"),
    "nothing as output": (source("return []"), "forward returns nothing"),
    "empty output": (source("return x[:0]"), "an output has no elements"),
    "complex output": (
        source("return torch.fft.fft(x)"),
        "an output is of complex64, which cannot be judged; return its real and imaginary parts",
    ),
    "a dictionary as output": (
        source("return {'y': x}"),
        "an output is of type dict, not a tensor; return its tensors one by one",
    ),
    "a number as input, drawn": (
        source(
            "return x * s", arguments="x, s", inputs="[torch.randn(8, 8), float(torch.rand(()))]"
        ),
        "input 1 changes from draw to draw (0.",
    ),
    "a number as input, drawn, and the remedy": (
        source(
            "return x * s", arguments="x, s", inputs="[torch.randn(8, 8), float(torch.rand(()))]"
        ),
        "return it as a tensor, or the same in every draw",
    ),
    "a number that no literal is": (
        source("return x * s", arguments="x, s", inputs="[torch.randn(8, 8), float('inf')]"),
        "input 1 is of type float, not a tensor; return a tensor, or a plain",
    ),
    "a tuple of tensors among the inputs": (
        source(
            "return x + y[0]",
            arguments="x, y",
            inputs="[torch.randn(8, 8), (torch.randn(8, 8), 3)]",
        ),
        "input 1 is of type tuple, not a tensor; return its tensors one by one",
    ),
    "a dictionary of tensors among the inputs": (
        source("return y['x']", arguments="n, y", inputs="[3, {'x': torch.randn(8, 8)}]"),
        "input 1 is of type dict, not a tensor; return its tensors one by one",
    ),
    "a dictionary as inputs": (
        source(inputs="{'x': torch.randn(8, 8)}"),
        "get_inputs() must return a list of tensors: the tensors of one call in forward's order, "
        "not dict",
    ),
    "one tensor as inputs": (source(inputs="torch.randn(8, 8)"), "forward's order, not Tensor"),
    "nothing as inputs": (source(inputs="None"), "forward's order, not NoneType"),
    "inputs that are drawn one by one": (
        source(inputs="(torch.randn(8, 8) for _ in range(1))"),
        "forward's order, not generator",
    ),
    "numbers alone as inputs": (
        source("return torch.rand(8, 8) * x", inputs="[3.0]"),
        "get_inputs() must return a list of tensors, and this one holds none",
    ),
    "a complex input": (
        source("return x.abs()", inputs="[torch.randn(8, 8, dtype=torch.complex64)]"),
        "input 0 is of complex64, which cannot be judged; return its real and imaginary parts",
    ),
    "a sparse input": (
        source("return x.to_dense()", inputs="[torch.randn(8, 8).to_sparse()]"),
        "input 0 is not a dense tensor, which alone can be judged; return its parts, dense",
    ),
    "an input of another shape in each draw": (
        source(
            "return torch.relu(x).sum(dim=0)",
            inputs="[torch.randn(int(torch.randint(2, 99, ())), 8)]",
        ),
        "8)); draw one shape and type, and say with a mask or lengths what of it counts",
    ),
    "another number of inputs in each draw": (
        source(
            "return sum(x)",
            arguments="*x",
            inputs="[torch.randn(8, 8)] * int(torch.randint(1, 99, ()))",
        ),
        "); return as many in every draw",
    ),
    "no inputs": (source(inputs="[]"), "get_inputs() must return a list of tensors"),
    "init inputs that are no literals": (
        source(init_inputs="[torch.Size([8])]"),
        "get_init_inputs() must return literals",
    ),
    "not a module": (source(base="object"), "Model is not a torch.nn.Module"),
    "Model is a number": (source().replace("class Model", "Model = 3\nclass Other"), "no Model"),
    "no Model": (source().replace("class Model", "class Other"), "defines no Model"),
    "no get_inputs": (source().replace("get_inputs", "draw"), "defines no get_inputs"),
    "no get_init_inputs": (
        source().replace("get_init_inputs", "arguments"),
        "defines no get_init_inputs",
    ),
    "syntax error": (source("return torch.relu(x"), "is not valid Python"),
    "null byte": (source("return x\0"), "is not valid Python"),
    "deep nesting": (source("return x" + " + 1" * 100_000), "nested too deeply"),
}

GOOD: dict[str, str] = {
    "plain": source(),
    "patches torch": source("torch.relu = torch.zeros_like\nreturn torch.sigmoid(x)"),
    "plain after another patched torch": source("x = torch.relu(x)\nreturn x"),
    "finds no key": source(top="import os\nif 'OPENAI_API_KEY' in os.environ: raise KeyError"),
    "prints what looks like an answer": source(
        'print(\'{"reason": "printed"}\', flush=True)\nreturn torch.relu(x)'
    ),
    "equal elements that follow the input": source("return x.mean().expand(8, 8)"),
    "a fixed mask among the inputs": source(
        "return x.masked_fill(y == 0, 0.0)",
        arguments="x, y",
        inputs="[torch.randn(8, 8), torch.tril(torch.ones(8, 8))]",
    ),
    "plain values among the inputs": source(
        "assert (s, n, m) == (3.5, None, {'a': (1, 'b')})\nreturn torch.relu(x) * s * y",
        arguments="s, x, n, y, m=0",
        inputs="(3.5, torch.randn(8, 8), None, torch.randn(8, 8), {'a': (1, 'b')})",
    ),
    "half inputs": source(
        "return torch.relu(x) @ y.half()",
        arguments="x, y",
        inputs="[torch.randn(8, 8).half(), torch.randn(8, 8).bfloat16()]",
    ),
    "a mask of booleans": source(
        "return x.masked_fill(y, 0.0)",
        arguments="x, y",
        inputs="[torch.randn(8, 8), torch.rand(8, 8) > 0.5]",
    ),
    "integers": source("return x + 1", inputs="[torch.randint(0, 9, (8, 8))]"),
    "float32 alone, by assertion": source(
        "assert x.dtype == torch.float32, 'only float32'\nreturn torch.relu(x)"
    ),
    "float32 alone, by a table": source("return torch.relu(x) * {torch.float32: 2.0}[x.dtype]"),
    "the place of the largest": source("return x.argmax(dim=-1)"),
    "several outputs": source("return x, x.sum(dim=0)"),
}
