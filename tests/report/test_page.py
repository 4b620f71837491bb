from __future__ import annotations

from html.parser import HTMLParser

import pytest

from cudal1.report.page import page_html
from cudal1.report.summary import summary_markdown

ATTACK = (
    "</code></pre></style></svg><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"
)
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Reader(HTMLParser):
    """What a browser would see: elements with their attributes, text of <code>, and balance."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.codes: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "code":
            self.codes.append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] == "code":
            self.codes[-1] += data


@pytest.fixture(scope="module")
def page(realistic) -> str:
    return page_html(realistic)


@pytest.fixture(scope="module")
def hostile(made):
    """Every text of every frame and of the provenance attacks."""
    rows = made.rows()
    keys = {"problem_id", "candidate_id", "completion_id", "device_kind", "protocol_id"}
    spared = keys | {"status", "role", "split"}
    for frame in rows.values():
        for row in frame:
            row.update({
                key: f"{value} {ATTACK}" if key != "stage" else f"{value}{ATTACK}"
                for key, value in row.items()
                if isinstance(value, str) and key not in spared
                and not (key == "name" and "step" in row)
                and not (key == "provider" and value == "policy")
            })  # fmt: skip
    rows["problems"][-1]["rejection"] = ATTACK
    rows["problems"][0]["source"] = f"\n\t  {ATTACK}\n\n"
    return made.build(
        rows, title=ATTACK, git_revision=ATTACK, generated_at=ATTACK, device={ATTACK: ATTACK},
        versions={ATTACK: ATTACK}, params={ATTACK: ATTACK},
    )  # fmt: skip


def test_hostile_text_makes_no_element(hostile):
    reader = Reader(page_html(hostile))
    assert not reader.open
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not any(name.startswith("on") for _, attrs in reader.elements for name in attrs)


def test_hostile_text_is_not_a_template(hostile):
    html = page_html(hostile)
    assert "{{7*7}}" in html


def test_hostile_text_makes_no_element_in_the_summary(hostile):
    shown = summary_markdown(hostile)
    assert "<script" not in shown
    assert "<img" not in shown


def test_sources_are_shown_to_the_letter(hostile):
    shown = set(Reader(page_html(hostile)).codes)
    admitted = hostile.problems.filter(hostile.problems["admitted"])
    assert set(admitted["source"].to_list()) <= shown


def test_the_page_needs_nothing_from_elsewhere(page):
    for tag, attrs in Reader(page).elements:
        assert tag not in {"script", "link", "img", "iframe"}
        assert "src" not in attrs
        for name in ("href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith("#")
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_links_of_the_page_lead_somewhere(page):
    elements = Reader(page).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"] for tag, attrs in elements if tag == "a"}
    assert {f"#{name}" for name in ids} >= targets


def test_the_page_is_dressed_for_light_and_dark_and_for_phones(page):
    assert page.count("prefers-color-scheme: dark") == 2
    assert 'name="viewport"' in page


def test_an_empty_report_says_nothing_yet_in_every_chapter(empty):
    html = page_html(empty)
    assert html.count('class="nothing"') >= 12
    assert "nan" not in html.lower().replace("provenance", "")


@pytest.mark.parametrize(
    "absent",
    [
        "completions", "candidates", "verdicts", "flags", "null_test", "transferred", "samples",
        "steps",
    ],
)  # fmt: skip
def test_a_run_that_lacks_one_kind_of_fact_still_has_a_report(made, absent):
    rows = made.rows()
    rows[absent] = []
    html = page_html(made.build(rows))
    assert html.endswith("</html>")
    assert summary_markdown(made.build(rows))


def test_a_best_candidate_without_source_is_said_so(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c")]})
    assert "The source was not handed over" in page_html(given)


def test_each_kind_of_hack_shows_one_example(realistic, page):
    kinds = realistic.flags["kind"].unique().to_list()
    assert len(kinds) > 3
    for kind in kinds:
        assert f'<span class="what">{kind}</span>' in page


def test_success_without_timing_makes_a_report(made):
    given = made.build({
        "problems": [made.problem(split="heldout")],
        "verdicts": [made.verdict("p11", "c", None)],
        "completions": [made.answer("p11", "c", stage="rl", provider="policy")],
    })  # fmt: skip
    assert "no timed success" in page_html(given)
