"""Prompts carry exactly what they are given, in both styles."""

from __future__ import annotations

import pytest

from cudal1 import prompt
from cudal1.contrast import Exemplar
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompt import PromptStyle, answer_text, contrastive_prompt, generation_prompt

STYLES = list(PromptStyle)
SOURCE = "import torch\n\n\nclass Model:\n    '''$reference ${x} $ $$ $unknown'''\n"
ONE = Exemplar(candidate_id="a", source="class ModelNew: '$score'\n", score=1.004)
TWO = Exemplar(candidate_id="b", source="class ModelNew: 'second'\n", score=2.5)


def _problem(source: str = SOURCE) -> Problem:
    return Problem(
        suite="s", level=1, number=1, name="n", split=Split.TRAIN, device_class=DeviceClass.CPU,
        revision="r", source=source,
    )  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_a_generation_prompt_shows_the_reference_to_the_letter(style: PromptStyle) -> None:
    (message,) = generation_prompt(_problem(), style=style).messages
    assert message.role == "user"
    assert SOURCE.rstrip() in message.content


@pytest.mark.parametrize("style", STYLES)
def test_a_contrastive_prompt_shows_exemplars_with_scores_in_their_order(
    style: PromptStyle,
) -> None:
    made = contrastive_prompt(_problem(), [TWO, ONE], style=style)
    text = made.messages[0].content
    assert made.exemplar_ids == ("b", "a")
    parts = ["2.50", TWO.source.rstrip(), "1.00", ONE.source.rstrip()]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert SOURCE.rstrip() in text


@pytest.mark.parametrize("style", STYLES)
def test_without_exemplars_the_contrastive_prompt_is_the_generation_prompt(
    style: PromptStyle,
) -> None:
    plain = generation_prompt(_problem(), style=style)
    assert contrastive_prompt(_problem(), [], style=style) == plain


@pytest.mark.parametrize("style", STYLES)
def test_a_value_that_a_template_lacks_is_an_error(style: PromptStyle) -> None:
    with pytest.raises(ConfigError, match=r"generate\.md: placeholders are \['reference'\]"):
        prompt._render(style, "generate", reference="x", colour="red")


@pytest.mark.parametrize("style", STYLES)
def test_a_placeholder_that_nobody_fills_is_an_error(style: PromptStyle) -> None:
    with pytest.raises(ConfigError, match=r"exemplar\.md: placeholders are") as caught:
        prompt._render(style, "exemplar", index="1", score="1.00")
    assert "\n" not in str(caught.value)


def test_both_styles_have_the_same_templates() -> None:
    for name in ("generate", "contrast", "exemplar"):
        one, other = (prompt._template(style, name).get_identifiers() for style in STYLES)
        assert set(one) == set(other)


def test_the_paper_s_style_asks_for_the_paper_s_sections() -> None:
    text = contrastive_prompt(_problem(), [ONE], style=PromptStyle.PAPER).messages[0].content
    sections = [
        "# Task for CUDA Optimization", "## Reference Code",
        "## Previous CUDA Implementations with Scores", "## Generation Protocol",
        "## Performance Analysis", "## Algorithm Design", "## Code Implementation",
        "## Requirements and Restrictions",
    ]  # fmt: skip
    places = [text.index(section + "\n") for section in sections]
    assert places == sorted(places)


def test_the_compact_style_is_much_shorter() -> None:
    short, long = (
        contrastive_prompt(_problem(), [ONE, TWO], style=style).messages[0].content
        for style in (PromptStyle.COMPACT, PromptStyle.PAPER)
    )
    assert len(short) < len(long) / 3


def test_a_prompt_is_named_by_its_words() -> None:
    one = generation_prompt(_problem(), style=PromptStyle.COMPACT)
    again = generation_prompt(_problem(), style=PromptStyle.COMPACT)
    other = generation_prompt(_problem(SOURCE + "# more"), style=PromptStyle.COMPACT)
    renamed = one.model_copy(update={"exemplar_ids": ("z",)})
    assert one.id == again.id == renamed.id != other.id


def test_a_chat_is_its_messages() -> None:
    made = generation_prompt(_problem(), style=PromptStyle.COMPACT)
    assert made.as_chat() == [{"role": "user", "content": made.messages[0].content}]


def test_an_answer_is_one_fenced_block() -> None:
    assert answer_text("x = 1\n\n") == "```python\nx = 1\n```"
