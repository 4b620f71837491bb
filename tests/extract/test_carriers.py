"""Tests that each carrier gives its source back, and that plain sources stay unchanged."""

from __future__ import annotations

import html
import json
import re
import textwrap
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.extract.extract import extract
from cudal1.files.python_file import parsed
from cudal1.prompts.prompt import answer_text
from tests.answers.saved import saved_answers

RELU = (
    "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
    "    def forward(self, x):\n        return torch.relu(x)\n"
)
STRINGS = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
    '    """A module.\n\n    >>> ModelNew()\n    ModelNew()\n    """\n\n'
    "    def forward(self, x):\n"
    '        print("a\\tb\\n", \'c\\\\d\', "it\'s", f"{x.shape}: 1 | 2")\n'
    "        return x  # `x`, <b>, &amp; | 3\n"
)
KERNEL = (
    'import torch\nfrom torch.utils.cpp_extension import load_inline\n\nSRC = r"""\n'
    '#include <torch/extension.h>\n__global__ void f(float* x) { if (x[0] < 1) printf("a\\n"); }\n'
    "void g(torch::Tensor x) {\n    f<<<1, 1>>>(x.data_ptr<float>());\n}\n"
    '"""\next = load_inline(name="f", cpp_sources="", cuda_sources=SRC)\n\n\n'
    "class ModelNew(torch.nn.Module):\n"
    "    def forward(self, x):\n        ext.g(x)\n        return x\n"
)
MODULES = {"relu": RELU, "strings": STRINGS, "kernel": KERNEL}
FENCE = "```python\n{}```\n"


def fenced(text: str) -> str:
    return f"Here:\n\n```python\n{text.rstrip()}\n```\nIt is fast.\n"


def each_line(form: Callable[[int, str], str]) -> Callable[[str], str]:
    """Return a carrier that changes every line by its number and its text."""
    return lambda code: "\n".join(
        form(number, line) for number, line in enumerate(code.rstrip("\n").split("\n"), 1)
    )


def cells(code: str, *, as_text: bool = False, split: bool = False) -> str:
    """Return a notebook with text around the code."""
    parts = re.split(r"\n\n+(?=class )", code) if split else [code]
    sources = [part if as_text else part.splitlines(keepends=True) for part in parts]
    return json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# Code\n", "class ModelNew: is below\n"]},
                *({"cell_type": "code", "outputs": [], "source": source} for source in sources),
            ],
            "nbformat": 4,
        },
        indent=1,
    )


def call(code: str, key: str = "content") -> dict[str, str]:
    return {"path": "a.py", key: code}


def prompted(code: str, first: str, later: str) -> str:
    lines = code.rstrip("\n").split("\n")
    return "\n".join(
        (later if not line or line[0].isspace() or line[0] in "\"')" else first) + line
        for line in lines
    )


TOOL_CALLS: dict[str, Callable[[str], str]] = {
    "arguments as a string": lambda code: (
        f"<tool_call>\n"
        f"{json.dumps({'name': 'write', 'arguments': json.dumps(call(code))})}\n</tool_call>"
    ),
    "arguments as a string of a string": lambda code: json.dumps(
        {"arguments": json.dumps(json.dumps(call(code)))}
    ),
    "arguments as an object": lambda code: (
        f"<tool_call>{json.dumps({'name': 'write', 'arguments': call(code)})}</tool_call>"
    ),
    "a tool_use block": lambda code: json.dumps(
        [
            {"type": "text", "text": "I write it.\nNow."},
            {"type": "tool_use", "name": "edit", "input": call(code, "file_text")},
        ]
    ),
    "OpenAI's tool_calls": lambda code: json.dumps(
        {"tool_calls": [{"function": {"name": "f", "arguments": json.dumps(call(code, "code"))}}]}
    ),
    "a replaced text": lambda code: json.dumps(
        {"old_str": "class Model(nn.Module):\n    pass\n", "new_str": code}
    ),
    "a key of its own": lambda code: f"Sure.\n{json.dumps({'ModelNew.py': code}, indent=2)}\nDone.",
    "a python tag and JSON": lambda code: f"<|python_tag|>{json.dumps({'parameters': call(code)})}",
    "a python tag": lambda code: f"<|python_tag|>{code}<|eom_id|>",
    "a function tag with JSON": lambda code: f"<function=write>{json.dumps(call(code))}</function>",
    "parameter tags": lambda code: (
        f"<tool_call>\n<function=write>\n<parameter=path>\na.py\n"
        f"</parameter>\n<parameter=content>\n{code}</parameter>\n</function>\n</tool_call>"
    ),
    "parameter tags on the line of the code": lambda code: (
        '<invoke name="write">\n'
        f'<parameter name="path">a.py</parameter>\n<parameter name="content">{code}</parameter>\n'
        "</invoke>"
    ),
    "character data": lambda code: f"<file><content><![CDATA[{code}]]></content></file>",
    "a list of lines": lambda code: json.dumps({"lines": code.rstrip("\n").split("\n")}, indent=1),
    "a dictionary of Python": lambda code: str({"name": "write", "content": f"\n{code}"}),
    "line breaks that are not escaped": lambda code: (
        json.dumps(call(code)).replace('\\"', '"').replace("\\n", "\n")
        if "\\" not in code
        else json.dumps(call(code))
    ),
    "a string alone": lambda code: json.dumps(code),
    "an answer in a string": lambda code: json.dumps({"answer": fenced(code)}),
    "named arguments": lambda code: (
        f"<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>{code}</arg_value>\n</tool_call>"
    ),
    "names in a namespace": lambda code: (
        f'<x:call><x:invoke name="w"><x:parameter name="text">{code}'
        "</x:parameter></x:invoke></x:call>"
    ),
    "other marks of calls": lambda code: f"[TOOL_CALLS] {json.dumps([{'arguments': call(code)}])}",
    "a call of Python": lambda code: f"```python\nwrite_file(path='a.py', content={code!r})\n```",
    "a string that is written": lambda code: fenced(
        f"code = {json.dumps(code)}\nopen('a.py', 'w').write(code)"
    ),
    "YAML in a fence": lambda code: (
        f"```yaml\npath: a.py\ncontent: |\n{textwrap.indent(code, '  ')}done: true\n```"
    ),
    "YAML": lambda code: f"tool: write\ncontent: |\n{textwrap.indent(code, '  ')}\n",
}
ESCAPED: dict[str, Callable[[str], str]] = {
    "line breaks": lambda code: fenced(json.dumps(code)[1:-1]),
    "line breaks and quotes": lambda code: fenced(json.dumps(code)[1:-1].replace("\\\\", "\\")),
    "twice": lambda code: fenced(json.dumps(json.dumps(code)[1:-1])[1:-1]),
    "line ends of Windows": lambda code: fenced(json.dumps(code.replace("\n", "\r\n"))[1:-1]),
    "a whole answer": lambda code: json.dumps(fenced(code))[1:-1],
    "entities": lambda code: fenced(html.escape(code)),
    "some entities": lambda code: fenced(
        code.replace("&", "&amp;").replace('"', "&quot;").replace("(", "&#40;")
    ),
}
MARKED: dict[str, Callable[[str], str]] = {
    "prompts": lambda code: fenced(prompted(code, ">>> ", "... ")),
    "prompts without a fence": lambda code: prompted(code, ">>> ", "... "),
    "prompts and output": lambda code: fenced(f"{prompted(code, '>>> ', '... ')}\n>>> \n<module>"),
    "numbered prompts": lambda code: fenced(prompted(code, "In [1]: ", "   ...: ")),
    "prompts on their own lines": lambda code: fenced(f"In [1]:\n{code}\nOut[1]: 3\nIn [2]:\n"),
    "numbers and bars": lambda code: fenced(each_line(lambda n, s: f"{n:3} | {s}")(code)),
    "numbers and bars from a terminal": lambda code: fenced(
        each_line(lambda n, s: f"{n:4}│ {s}".rstrip())(code)
    ),
    "numbers and tabs": lambda code: fenced(each_line(lambda n, s: f"{n:6}\t{s}")(code)),
    "numbers and colons": lambda code: fenced(each_line(lambda n, s: f"{n}: {s}")(code)),
    "numbers and points": lambda code: fenced(each_line(lambda n, s: f"{n}. {s}")(code)),
    "numbers and brackets": lambda code: fenced(each_line(lambda n, s: f"{n:02}) {s}")(code)),
    "numbers and blanks": lambda code: fenced(each_line(lambda n, s: f"{n:>3} {s}")(code)),
    "numbers that begin late": lambda code: fenced(
        each_line(lambda n, s: f"{n + 97:4}: {s}")(code)
    ),
    "numbers of lines": lambda code: fenced(each_line(lambda n, s: f"L{n}: {s}")(code)),
    "numbers without a fence": each_line(lambda n, s: f"{n:3} | {s}"),
    "numbers but not of blank lines": lambda code: fenced(
        each_line(lambda n, s: f"{n:3} | {s}" if s else "")(code)
    ),
    "numbers in brackets": lambda code: fenced(each_line(lambda n, s: f"[{n}] {s}")(code)),
    "numbers in a quotation": lambda code: textwrap.indent(
        fenced(each_line(lambda n, s: f"{n:3} | {s}")(code)), "> ", lambda line: True
    ),
    "bars": lambda code: fenced(each_line(lambda _, s: f"| {s}")(code)),
    "a box": lambda code: fenced(each_line(lambda _, s: f"\u2502 {s:<90} \u2502")(code)),
    "plus signs": lambda code: fenced(each_line(lambda n, s: f"+{s}")(code)),
    "plus signs and blanks": lambda code: fenced(each_line(lambda n, s: f"+ {s}")(code)),
    "plus signs without a fence": each_line(lambda n, s: f"+{s}"),
    "a quotation": lambda code: textwrap.indent(fenced(code), "> ", lambda line: True),
    "a quotation without a fence": lambda code: textwrap.indent(code, "> ", lambda line: True),
}
FENCES: dict[str, Callable[[str], str]] = {
    "three single quotes": lambda code: f"'''python\n{code}'''\n",
    "three double quotes": lambda code: f'Here:\n"""python\n{code}"""\nDone.',
    "three single quotes without a language": lambda code: f"'''\n{code}'''\n",
    "one backtick": lambda code: f"`python\n{code}`\n",
    "one backtick on the lines of the code": lambda code: f"`{code.rstrip()}`",
    "two backticks": lambda code: f"Here:\n\n``\n{code}``\n",
    "tildes": lambda code: f"~~~python\n{code}~~~\n",
    "quotation marks": lambda code: f"\u2018\u2018\u2018python\n{code}\u2018\u2018\u2018\n",
    "acute accents": lambda code: f"\u00b4\u00b4\u00b4python\n{code}\u00b4\u00b4\u00b4\n",
    "quotes that are never closed": lambda code: f"'''python\n{code}",
    "tags": lambda code: f"<pre><code>\n{html.escape(code)}</code></pre>",
    "tags with the code on their line": lambda code: f"<code>{code}</code>",
    "brackets": lambda code: f"[code]\n{code}[/code]",
}
BLANKS: dict[str, Callable[[str], str]] = {
    "blanks that do not break": lambda code: fenced(code.replace("    ", "\xa0" * 4)),
    "narrow blanks": lambda code: fenced(code.replace("    ", "\u202f" * 4)),
    "wide blanks": lambda code: fenced(code.replace("    ", "\u3000" * 4)),
    "joiners": lambda code: fenced(code.replace("torch.", "torch\u200c.")),
    "soft hyphens": lambda code: fenced(code.replace("ModelNew", "Model\u00adNew")),
    "blanks without width": lambda code: fenced(code.replace("import", "\u200bimport")),
    "a mark inside": lambda code: fenced(f"\ufeff{code}"),
    "marks of direction": lambda code: fenced(code.replace("\n", "\u200e\n")),
}
CELLS: dict[str, Callable[[str], str]] = {
    "a notebook of lines": cells,
    "a notebook of texts": lambda code: cells(code, as_text=True),
    "a notebook in a fence": lambda code: f"```json\n{cells(code)}\n```",
}
WAYS = {
    f"{kind}: {name}": way
    for kind, ways in (
        ("call", TOOL_CALLS),
        ("escaped", ESCAPED),
        ("marked", MARKED),
        ("fence", FENCES),
        ("blank", BLANKS),
        ("cells", CELLS),
    )
    for name, way in ways.items()
}


AMBIGUOUS = {
    ("escaped: line breaks and quotes", "kernel"),
    ("fence: one backtick on the lines of the code", "strings"),
}
"""Pairs of carrier and source that cannot be told apart: equal escapes; a mark or a comment."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("module", MODULES)
def test_every_carrier_gives_its_source_back(way: str, module: str) -> None:
    if (way, module) in AMBIGUOUS:
        pytest.skip("nobody can tell")
    code = MODULES[module]
    extraction = extract(WAYS[way](code))
    assert extraction.source is not None, extraction.reason
    assert same(extraction.source) == same(code)


def same(source: str) -> str:
    """Return a source without the blank lines and line ends that carriers do not keep."""
    return re.sub(r"\s*\n\s*\n", "\n", source).strip()


@pytest.mark.parametrize("as_text", [True, False])
def test_the_cells_of_a_notebook_are_one_module(as_text: bool) -> None:
    source = extract(cells(KERNEL, as_text=as_text, split=True)).source
    assert source is not None
    assert same(source) == same(KERNEL)


def test_a_string_that_is_written_to_a_file_is_the_source() -> None:
    assert extract(fenced(f"code = '''\n{RELU}'''\nPath('a.py').write_text(code)")).source == RELU
    only_said = f'"""\nIt would be\n\n{RELU}\n"""\nx = 1\n'
    assert extract(fenced(only_said)).source is None


def test_a_kernel_in_its_own_file_is_not_python() -> None:
    files = [
        {"path": "f.cu", "content": "#include <x.h>\nint torch = 1;\n"},
        {"path": "model.py", "content": RELU},
        {"path": "README.md", "content": "Run it:\n\n    class ModelNew: pass\n"},
    ]
    assert extract(json.dumps({"files": files})).source == RELU


def test_a_truncated_call_is_read_to_its_end() -> None:
    said = json.dumps({"name": "write", "arguments": call(STRINGS)})
    cut = said[: said.index("return x") + len("return x")]
    source = extract(f"<tool_call>\n{cut}").source
    assert source is not None
    assert source == STRINGS[: len(source) - 1] + "\n"
    assert source.endswith("return x\n")


def test_the_last_of_several_calls_counts() -> None:
    calls = [json.dumps({"arguments": json.dumps(call(code))}) for code in (STRINGS, RELU)]
    assert extract("\n".join(f"<tool_call>{said}</tool_call>" for said in calls)).source == RELU


def test_a_call_inside_a_thought_does_not_count() -> None:
    thought = json.dumps(call(STRINGS))
    assert extract(f"<think>\n{thought}\n</think>\n{json.dumps(call(RELU))}").source == RELU
    assert extract(f"<think>\n{thought}\n</think>\nI cannot.").source is None
    assert extract(f"<think>\n{thought}\n").source is None


# --- sources that are Python already --------------------------------------------------------------

HEAD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
PLAIN = {
    "escapes in strings": f'{HEAD}    text = "a\\nclass ModelNew:\\n    pass\\n\\t\\\\n"\n',
    "JSON in a string": f"{HEAD}    text = '{json.dumps(call(RELU))}'\n",
    "a session in a docstring": f'"""\n>>> import a\n>>> b\n... c\n1\n"""\n{HEAD}    x = 1\n',
    "a session of a class": f'{HEAD}    """\n    >>> class ModelNew:\n    ...   x = 1\n    """\n',
    "a table of numbers": f'{HEAD}    table = """\n1 | 2\n2 | 3\n3 | class ModelNew:\n"""\n',
    "rows of numbers": f"{HEAD}    rows = [\n1,\n2,\n3,\n]\n",
    "entities": f'{HEAD}    page = "&lt;b&gt; &amp; &quot;"\n    is_less = 1 < 2\n',
    "tags": f'{HEAD}    page = """\n<code>\n</code>\n<parameter=x>\n"""\n',
    "lines that begin with signs": f"{HEAD}    x = (\n+ 1\n+ 2\n+ 3\n)\n",
    "lines that begin with comparisons": f"{HEAD}    x = (1\n> 0\n> -1\n> -2)\n",
    "quotes alone": f"'''\npython\n'''\n{HEAD}    x = '''\n'''\n",
    "odd blanks": f"{HEAD}    x = 'a\u2003b\u200cc'\n",
}
BROKEN = {
    "a slip": f"{HEAD}    def f(self:\n        pass\n",
    "a slip beside escapes": f'{HEAD}    x = "a\\nb"\n    def f(self:\n        print("\\n")\n',
    "a slip beside marks": f"{HEAD}    x = (\n+ 1\n+ 2\n+ 3\n    def f(self:\n        pass\n",
    "the end of a string": f'{HEAD}    x = "a\n',
    "quotation marks": f"{HEAD}    x = \u201ca\u201d\n",
    "prose at its end": f"{HEAD}    x = 1\nThis is fast.\n",
}


@pytest.mark.parametrize("what", PLAIN)
def test_a_source_that_looks_like_a_carrier_stays_unchanged(what: str) -> None:
    assert extract(answer_text(PLAIN[what])).source == PLAIN[what]
    assert extract(fenced(PLAIN[what])).source == PLAIN[what]


@pytest.mark.parametrize("what", BROKEN)
def test_a_source_that_is_not_python_either_way_stays_unchanged(what: str) -> None:
    assert extract(fenced(BROKEN[what])).source == BROKEN[what]


def test_a_broken_source_is_not_replaced_by_a_draft() -> None:
    draft = f"Before it was:\n\n```text\n{prompted(RELU, '>>> ', '... ')}\n```\n"
    broken = BROKEN["a slip"]
    assert extract(f"{draft}\n{fenced(broken)}").source == broken


SOURCES = [answer.source for answer in saved_answers() if answer.source]


FENCE_IN_DOCSTRING = '''import torch


class ModelNew(torch.nn.Module):
    """Scale rows instead of multiplying by a diagonal matrix.

    ```
    C[i, j] = A[i] * B[i, j]
    ```
    """

    def forward(self, A, B):
        return A[:, None] * B
'''


MARKS = ("```", "'''")
"""Marks that end carried code, and may stand in it, too."""
ENDS_ARE_GUESSED = {
    "call: line breaks that are not escaped",
    "cells: a notebook of lines",
    "fence: three single quotes",
    "fence: three single quotes without a language",
}
"""Ways in which two saved sources end too early or too late."""


@pytest.mark.parametrize("way", ["call: OpenAI's tool_calls", "call: a key of its own"])
def test_a_fence_in_a_docstring_ends_no_source_in_json(way: str) -> None:
    assert extract(WAYS[way](FENCE_IN_DOCSTRING)).source == (FENCE_IN_DOCSTRING)


@pytest.mark.slow
@pytest.mark.parametrize("way", sorted(set(WAYS) - ENDS_ARE_GUESSED))
def test_a_carrier_never_turns_a_valid_saved_source_into_an_invalid_one(way: str) -> None:
    valid = [code for code in SOURCES if parsed(code) and not any(mark in code for mark in MARKS)]
    found = [extract(WAYS[way](code)).source for code in valid]
    assert [source for source in found if source is not None and parsed(source) is None] == []


PIECES = (
    "\\n",
    "\\\\n",
    '"',
    "'",
    ">>> ",
    "... ",
    "1 | ",
    "2: ",
    "\n",
    "{",
    "}",
    "[",
    "]",
    '": "',
    "class ModelNew:",
    "    x = 1",
    "import a",
    "&lt;",
    "<a>",
    "'''python",
    "+",
    "> ",
    "```",
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_mixture_of_carriers_raises(text: str) -> None:
    extraction = extract(text)
    assert (extraction.source is None) != (extraction.reason is None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        '{"a":',
        '["',
        "[[",
        '"x": "',
        ">>> a\n",
        "1 | a\n",
        "<a ",
        "<a>",
        "\\\\",
        "\\n",
        "&lt;",
        "'''python\n",
        "'''\n",
        "`\n",
        "> a\n",
        "+a\n",
        '{"a": "b\\n"}\n',
        "\xa0",
        "'",
        '"',
    ],
)
def test_many_marks_are_read_in_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        laps: list[float] = []
        for _ in range(2):
            started = time.process_time()
            extract(f"{unit * count} ModelNew {unit * count}")
            laps.append(time.process_time() - started)
        return min(laps)

    seconds(100)
    assert seconds(16_000) < 64 * max(seconds(2_000), 2e-3)
