"""Tests of extraction: a table of short answers, long saved ones, and properties under fuzzing."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.extract.extract import MAX_SOURCE_CHARS, extract
from cudal1.prompts.prompt import answer_text
from tests.answers.saved import FOLDER, SavedAnswer, saved_answers

CODE = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
    "    def forward(self, x):\n        return x\n"
)
OTHER = CODE.replace("return x", "return x + 1")
BODY = CODE.rstrip()
INDENTED = "\n".join(f"   {line}" if line else "" for line in BODY.split("\n"))
QUOTED = "\n".join(f"> {line}".rstrip() for line in BODY.split("\n"))
KERNEL = "import torch\nSRC = '''\n__global__ void f() {\n}\n'''\nclass ModelNew:\n    src = SRC\n"
ANSWERS = saved_answers()

FOUND = {
    "plain block": (f"```python\n{CODE}```", CODE),
    "no language": (f"```\n{CODE}```", CODE),
    "py as language": (f"```py\n{CODE}```", CODE),
    "capital language with attributes": (f"```Python title=x.py\n{CODE}```", CODE),
    "prose around": (f"Here you are.\n\n```python\n{CODE}```\nIt fuses two steps.", CODE),
    "three sections": (
        f"## Performance Analysis\nSlow.\n## Algorithm Design\nFuse.\n"
        f"## Code Implementation\n```python\n{CODE}```",
        CODE,
    ),
    "earlier version quoted in the analysis": (
        f"## Performance Analysis\n```python\n{OTHER}```\n"
        f"## Code Implementation\n```python\n{CODE}```",
        CODE,
    ),
    "alternative after the implementation section": (
        f"## Code Implementation\n```python\n{CODE}```\n## Alternative\n```python\n{OTHER}```",
        CODE,
    ),
    "section headings in bold": (
        f"**Code Implementation**\n```python\n{CODE}```\n**Variant**\n```python\n{OTHER}```",
        CODE,
    ),
    "section heading with number and colon": (
        f"### 3. Code Implementation:\n```python\n{CODE}```\n### 4. Notes\n```python\n{OTHER}```",
        CODE,
    ),
    "section names in prose are no heading": (
        f"The code implementation below replaces the one above in every respect that matters.\n"
        f"```python\n{CODE}```",
        CODE,
    ),
    "section without a fence": (f"## Code Implementation\n\n{CODE}", CODE),
    "code outside its section": (f"```python\n{CODE}```\n## Code Implementation\nSee above.", CODE),
    "last of two blocks": (f"```python\n{OTHER}```\nBetter:\n```python\n{CODE}```", CODE),
    "usage example after it": (f"```python\n{CODE}```\nUse:\n```python\nm = ModelNew()\n```", CODE),
    "shell block before it": (f"```bash\npip install x\n```\n```python\n{CODE}```", CODE),
    "tildes": (f"~~~python\n{CODE}~~~", CODE),
    "tildes around backticks": (f"~~~~markdown\n```python\n{CODE}```\n~~~~", CODE),
    "four backticks": (f"````python\n{CODE}````", CODE),
    "markdown around the block": (f"````markdown\n# Answer\n```python\n{CODE}```\n````", CODE),
    "indented fence": (f"   ```python\n{INDENTED}\n   ```", CODE),
    "indented fence, code at the margin": (f"   ```python\n{CODE}   ```", CODE),
    "code indented in a flush fence": (f"```python\n{INDENTED}\n```", CODE),
    "fence in a list": (f"1. ```python\n{INDENTED}\n   ```", CODE),
    "fence in a quotation": (f"> ```python\n{QUOTED}\n> ```", CODE),
    "fence after prose on its line": (f"The code: ```python\n{CODE}```", CODE),
    "closing fence after code on its line": (f"```python\n{BODY}```", CODE),
    "code on the line of the opening fence": (f"```python {CODE}```", CODE),
    "closing fence missing": (f"```python\n{CODE}", CODE),
    "opening fence missing": (f"{CODE}```", CODE),
    "both fences missing": (CODE, CODE),
    "both fences missing, prose before": (f"Import the module as usual.\n\n{CODE}", CODE),
    "both fences missing, prose after": (f"{CODE}\nThis version is faster (a lot).", CODE),
    "language without fence": (f"python\n{CODE}", CODE),
    "no fence and a comment first": (f"# fast\n{CODE}\n# the end", f"{CODE}\n# the end\n"),
    "no fence and inline kernel": (KERNEL, KERNEL),
    "first of two fences not closed": (f"```python\n{OTHER}\n```python\n{CODE}```", CODE),
    "first block not closed and the second useless": (
        f"```python\n{CODE}\n```bash\nnvidia-smi\n```",
        CODE,
    ),
    "windows line ends": (f"```python\n{CODE}```".replace("\n", "\r\n"), CODE),
    "old mac line ends": (f"```python\n{CODE}```".replace("\n", "\r"), CODE),
    "byte order mark": (f"\ufeff```python\n{CODE}```", CODE),
    "trailing blanks after fences": (f"```python   \n{CODE}```   \n", CODE),
    "reasoning before": (f"<think>Maybe cache?</think>\n```python\n{CODE}```", CODE),
    "reasoning with a draft": (
        f"<think>\n```python\n{OTHER}```\n</think>\n```python\n{CODE}```",
        CODE,
    ),
    "reasoning with an open fence": (
        f"<think>\n```python\n{OTHER}</think>\n```python\n{CODE}```",
        CODE,
    ),
    "reasoning whose opening tag was in the prompt": (
        f"So, try\n```python\n{OTHER}```\n</think>\n\n```python\n{CODE}```",
        CODE,
    ),
    "reasoning in other tags": (
        f"<Reasoning>\n```python\n{OTHER}```\n</Reasoning>\nDone.\n```python\n{CODE}```",
        CODE,
    ),
    "reasoning after the code is dropped": (
        f"```python\n{CODE}```\n<think>\n```python\n{OTHER}```\n</think>",
        CODE,
    ),
    "reasoning tags inside code stay": (f"```python\n# <think>\n{CODE}```", f"# <think>\n{CODE}"),
    "two classes in a block": (
        f"```python\nclass Model:\n    pass\n\n\n{CODE}```",
        f"class Model:\n    pass\n\n\n{CODE}",
    ),
    "ModelNew twice in a block": (f"```python\n{OTHER}\n{CODE}```", f"{OTHER}\n{CODE}"),
    "block without bases": ("```\nclass ModelNew:\n    x = 1\n```", "class ModelNew:\n    x = 1\n"),
    "helper class that begins with the name": (
        f"```python\n{CODE}```\n```python\nclass ModelNewHelper:\n    pass\n```",
        CODE,
    ),
}

NOT_FOUND = {
    "empty": ("", "empty answer"),
    "blank": (" \n\t\n", "empty answer"),
    "refusal": ("I cannot help with that.", "no code"),
    "ModelNew in prose only": ("The class ModelNew should call F.softmax.", "no code"),
    "ModelNew begins a line of prose": ("I advise this:\nclass ModelNew is a softmax.", "no code"),
    "ModelNew inside an inline span": ("Write `class ModelNew(nn.Module):` first.", "no code"),
    "wrong name": ("```python\nclass Model:\n    pass\n```", "defines Model but not ModelNew"),
    "longer name": ("```python\nclass ModelNew2:\n    pass\n```", "defines ModelNew2 but not"),
    "only mentioned in a comment": ("```python\n# class ModelNew(x):\nx = 1\n```", "no code"),
    "cut off before the class": ("```python\nimport torch\nfrom torch", "cut off"),
    "only reasoning": ("<think>\nHm.\n</think>\n", "nothing but reasoning"),
    "reasoning that never ends": (f"<think>\nHm.\n```python\n{CODE}```", "nothing but reasoning"),
    "NUL": (f"```python\n{CODE}\x00```", "NUL"),
    "lone surrogate": (f"```python\n{CODE}# \ud800\n```", "surrogates"),
    "too long": (f"```python\n{CODE}{'#' * MAX_SOURCE_CHARS}\n```", "too long"),
    "fences without end": ("```" * 50, "cut off"),
}


@pytest.mark.parametrize("case", FOUND)
def test_an_awkward_answer_gives_its_source(case: str) -> None:
    text, source = FOUND[case]
    assert extract(text).source == source


@pytest.mark.parametrize("case", NOT_FOUND)
def test_an_answer_without_source_gives_the_reason(case: str) -> None:
    text, words = NOT_FOUND[case]
    extraction = extract(text)
    assert extraction.source is None
    assert words in (extraction.reason or "")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer.kind}/{answer.name}")
def test_a_saved_answer_gives_the_source_or_the_reason_beside_it(answer: SavedAnswer) -> None:
    extraction = extract(answer.text)
    assert (extraction.source, extraction.reason) == (answer.source, answer.reason)


def test_each_saved_answer_has_one_expectation_and_each_expectation_has_an_answer() -> None:
    files = {
        path for suffix in ("answer", "source", "reason") for path in FOLDER.rglob(f"*.{suffix}")
    }
    answers = {path for path in files if path.suffix == ".answer"}
    expectations = [path.with_suffix(".answer") for path in files - answers]
    assert len(answers) >= 100
    assert sorted(expectations) == sorted(answers)


@pytest.mark.parametrize(
    "answer",
    [answer for answer in ANSWERS if answer.source],
    ids=lambda answer: f"{answer.kind}/{answer.name}",
)
def test_an_extracted_source_is_extracted_again_from_its_training_answer(
    answer: SavedAnswer,
) -> None:
    assert answer.source is not None
    assert extract(answer_text(answer.source)).source == answer.source


MARKUP = re.compile(r"'''|\"\"\"|&\w+;|</|<\||<<|^%%|^[-+@]")
"""Markup that extraction undoes: escapes, tags, diffs; and strings that may hide a class."""
SOURCE_LINES = st.lists(
    st.text(
        alphabet=st.characters(
            exclude_categories=["Cs"],
            exclude_characters="`\x00\r\n\ufeff\u200b\u2060\N{NO-BREAK SPACE}",
        )
    ).filter(lambda line: not MARKUP.search(line)),
    max_size=8,
)


@pytest.mark.slow
@given(before=SOURCE_LINES, after=SOURCE_LINES)
def test_a_rendered_source_is_extracted_exactly(before: list[str], after: list[str]) -> None:
    source = "\n".join([*before, "class ModelNew(nn.Module):", *after]).strip("\n").rstrip() + "\n"
    assert extract(answer_text(source)).source == source


FRAGMENTS = st.sampled_from(
    [
        "```",
        "```python\n",
        "~~~",
        "\n",
        "\r\n",
        "   ",
        "> ",
        "1. ",
        "<think>",
        "</think>",
        "##",
        "## Code Implementation\n",
        "**Code Implementation**\n",
        "class ModelNew(x):\n",
        "import a\n",
        "class ModelNew",
        "    pass\n",
        "from x import y",
        "@",
        "'''",
        "\x00",
        "\ud800",
        "\ufeff",
        "<pre><code>",
        "</code>",
        "</answer>",
        "<|im_end|>\n",
        "&lt;",
        '"\\nclass ModelNew(x):\\n"',
        "```diff\n+",
        "cat <<EOF\n",
        "EOF\n",
        "ModelNew = x\n",
        "def f(x):\n",
        "if x:\n    ",
        "# ...",
    ]
)


@pytest.mark.slow
@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=40).map("".join))
@settings(max_examples=500)
def test_any_text_gives_a_source_or_a_reason(text: str) -> None:
    extraction = extract(text)
    assert (extraction.source is None) != (extraction.reason is None)


@pytest.mark.slow
@given(st.lists(FRAGMENTS, max_size=40).map("".join))
@settings(max_examples=300)
def test_every_source_defines_the_class(text: str) -> None:
    source = extract(text).source
    assert source is None or re.search(r"class[ \t]+ModelNew|^ModelNew\s*=", source, re.MULTILINE)


@given(st.data())
@settings(max_examples=300)
def test_a_saved_answer_truncated_anywhere_gives_a_source_or_a_reason(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(ANSWERS)).text
    extraction = extract(text[: data.draw(st.integers(0, len(text)))])
    assert (extraction.source is None) != (extraction.reason is None)


def seconds(text: str) -> float:
    """Return the least processor time of three tries: the machine may be busy with other work."""

    def once() -> float:
        started = time.process_time()
        extract(text)
        return time.process_time() - started

    return min(once() for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("frame", ["{}!\n" + CODE, "```python\n{}\n" + CODE + "```"])
@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "`",
        "a ",
        "a",
        "a `",
        "> ",
        "1. ",
        "from a import b ",
        "x, ",
        "#",
        "import a.",
        "**",
        "\\'",
        "'\\",
        '"\\',
        "(a,",
        "x.y.",
        "for a ",
        "<think></think>",
        "</code>",
        "</think>",
    ],
)
def test_a_long_hostile_line_is_read_in_linear_time(unit: str, frame: str) -> None:
    def read(count: int) -> float:
        return seconds(frame.replace("{}", unit * count))

    read(1000)
    assert read(32_000) < 64 * max(read(4_000), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        "```python\n'''\n",
        "```python\n'''\n```\n",
        f"```python\n{CODE}```\n",
        "```\n~~~\n",
        f"## Code Implementation\n```\n{CODE}",
        "</think>\n```\n",
        "<code>\n```\n",
        "import a\nb\n",
        "```\n'''\n```\n\"\"\"\n",
        "```python\nimport a\n```\n",
        "cat <<'E'\n",
        "'''\n</think>\n",
    ],
)
def test_many_hostile_lines_are_read_in_linear_time(lines: str) -> None:
    seconds(lines * 100)
    assert seconds(lines * 4_000) < 64 * max(seconds(lines * 500), 1e-3)
