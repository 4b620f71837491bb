"""An answer is whole if it compares, designs and implements, in this order."""

from __future__ import annotations

import pytest

from cudal1.extract.extract import extract
from cudal1.extract.sections import sections_of

ANALYSIS = "Code 2 is faster than code 1 because it makes one pass over memory."
DESIGN = "Fuse both operators into one kernel, and keep the row in registers."
CODE = "```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n```"
WHOLE = (
    f"## Performance Analysis\n\n{ANALYSIS}\n\n## Algorithm Design\n{DESIGN}\n\n"
    f"## Code Implementation\n\n{CODE}\n"
)


def test_a_whole_answer_has_its_sections_and_its_code() -> None:
    found = sections_of(WHOLE)
    assert (found.analysis, found.design, found.is_whole) == (ANALYSIS, DESIGN, True)
    assert extract(WHOLE).source is not None


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("## P", "### P").replace("## A", "#### 2. A"),
        WHOLE.replace("## Performance Analysis", "**Performance Analysis:**"),
        WHOLE.replace("## Performance", "## PERFORMANCE"),
        WHOLE.replace("import torch", "import torch\n\n## Algorithm Design: fused"),
        f"<think>\n## Performance Analysis\nno\n</think>\n{WHOLE}",
    ],
)
def test_headings_are_read_as_models_write_them(text: str) -> None:
    assert sections_of(text).is_whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        CODE,
        WHOLE.replace("## Performance Analysis", ""),
        WHOLE.replace(ANALYSIS, "It is faster."),
        WHOLE.replace(DESIGN, ""),
        WHOLE.partition("## Code")[0],
        WHOLE.replace(CODE, "It follows."),
        WHOLE.replace("## Code Implementation", "").replace(
            "import torch", "# Code Implementation"
        ),
        WHOLE.replace("Performance Analysis", "X")
        .replace("Algorithm Design", "Performance Analysis")
        .replace("X", "Algorithm Design"),
        f"<think>\n{WHOLE}\n</think>\n{CODE}",
    ],
)
def test_an_answer_that_lacks_a_part_is_not_whole(text: str) -> None:
    assert not sections_of(text).is_whole


def test_sections_are_kept_though_the_answer_is_not_whole() -> None:
    found = sections_of(f"## Algorithm Design\n{DESIGN}\n{CODE}")
    assert found.analysis is None
    assert found.design is not None
    assert found.design.startswith(DESIGN)
