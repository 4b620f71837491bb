"""Problem files that must be refused, and what the reason must say. A name is what is wrong."""

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
    """A problem file."""
    return WHOLE.format(
        top=top, base=base, arguments=arguments, forward=indent(forward, " " * 8), inputs=inputs,
        init_inputs=init_inputs,
    )  # fmt: skip


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
        source("return ((x - x.mean(dim=0)).mean(dim=0) * 1e9).long()",
               inputs="[torch.randn(7, 800)]"),
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
    "raises what is no Exception": (
        source("raise KeyboardInterrupt"), "raises KeyboardInterrupt"
    ),
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
        source("self.calls += 1\nreturn x + self.calls"), "gives different outputs"
    ),
    "changes its shape": (
        source("self.calls += 1\nreturn x.repeat(1, self.calls)"), "gives different outputs"
    ),
    "not a number": (source("return torch.log(x)"), "an output holds NaN or infinity"),
    "a list as output": (source("return x.tolist()"), "an output is of type list, not a tensor"),
    "nothing as output": (source("return []"), "forward returns nothing"),
    "empty output": (source("return x[:0]"), "an output has no elements"),
    "complex output": (source("return torch.fft.fft(x)"), "an output is of complex64"),
    "a number as input": (
        source("return x * s", arguments="x, s", inputs="[torch.randn(8, 8), 3.0]"),
        "an input is of type float, not a tensor",
    ),
    "no inputs": (source(inputs="[]"), "get_inputs() must return a list of tensors"),
    "init inputs that are no literals": (
        source(init_inputs="[torch.Size([8])]"), "get_init_inputs() must return literals"
    ),
    "not a module": (source(base="object"), "Model is not a torch.nn.Module"),
    "Model is a number": (source().replace("class Model", "Model = 3\nclass Other"), "no Model"),
    "no Model": (source().replace("class Model", "class Other"), "defines no Model"),
    "no get_inputs": (source().replace("get_inputs", "draw"), "defines no get_inputs"),
    "no get_init_inputs": (
        source().replace("get_init_inputs", "arguments"), "defines no get_init_inputs"
    ),
    "syntax error": (source("return torch.relu(x"), "is not valid Python"),
    "null byte": (source("return x\0"), "is not valid Python"),
    "deep nesting": (source("return x" + " + 1" * 100_000), "nested too deeply"),
}  # fmt: skip

GOOD: dict[str, str] = {
    "plain": source(),
    "patches torch": source("torch.relu = torch.zeros_like\nreturn torch.sigmoid(x)"),
    "plain after another patched torch": source("x = torch.relu(x)\nreturn x"),
    "finds no key": source(top="import os\nif 'OPENAI_API_KEY' in os.environ: raise KeyError"),
    "prints what looks like an answer": source(
        "print('{\"reason\": \"printed\"}', flush=True)\nreturn torch.relu(x)"
    ),
    "equal elements that follow the input": source("return x.mean().expand(8, 8)"),
    "a fixed mask among the inputs": source(
        "return x.masked_fill(y == 0, 0.0)", arguments="x, y",
        inputs="[torch.randn(8, 8), torch.tril(torch.ones(8, 8))]",
    ),
    "integers": source("return x + 1", inputs="[torch.randint(0, 9, (8, 8))]"),
    "float32 alone, by assertion": source(
        "assert x.dtype == torch.float32, 'only float32'\nreturn torch.relu(x)"
    ),
    "float32 alone, by a table": source(
        "return torch.relu(x) * {torch.float32: 2.0}[x.dtype]"
    ),
    "the place of the largest": source("return x.argmax(dim=-1)"),
    "several outputs": source("return x, x.sum(dim=0)"),
}  # fmt: skip
