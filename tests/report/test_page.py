# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from cudal1.report import facts
from cudal1.report.limits import NUM_PROBLEMS
from cudal1.report.page import page_html
from cudal1.report.summary import summary_markdown
from cudal1.report.tables.properties import property_table
from cudal1.report.words import terms

ATTACK = (
    "</code></pre></style></svg><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"
)
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Reader(HTMLParser):
    """A parser that records elements with attributes, text of <code>, and balance."""

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
        if "code" in self.open:
            self.codes[-1] += data


@pytest.fixture(scope="module")
def page(realistic) -> str:
    return page_html(realistic)


def hostile_input(made):
    """Return a report in which every text of every frame and of the provenance attacks."""
    rows = made.rows()
    keys = {
        "problem_id",
        "candidate_id",
        "completion_id",
        "device_kind",
        "protocol_id",
        "descendant_id",
    }
    spared = keys | {"status", "role", "split", "baseline"}
    for frame in rows.values():
        for row in frame:
            row.update(
                {
                    key: f"{value} {ATTACK}" if key != "stage" else f"{value}{ATTACK}"
                    for key, value in row.items()
                    if isinstance(value, str)
                    and key not in spared
                    and not (key == "name" and "step" in row)
                    and not (key == "provider" and value == "policy")
                }
            )
    rows["problems"][-1]["rejection"] = ATTACK
    rows["problems"][0]["invariants"] = [ATTACK]
    rows["problems"][0]["source"] = f"\n\t  {ATTACK}\n\n"
    return made.build(
        rows,
        title=ATTACK,
        git_revision=ATTACK,
        generated_at=ATTACK,
        device={ATTACK: ATTACK},
        versions={ATTACK: ATTACK},
        params={ATTACK: ATTACK},
    )


@pytest.fixture(scope="module")
def hostile(made):
    return hostile_input(made)


@pytest.fixture(scope="module")
def hostile_page(hostile) -> str:
    return page_html(hostile)


@pytest.mark.slow
def test_hostile_text_makes_no_element(hostile_page):
    reader = Reader(hostile_page)
    assert not reader.open
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not any(name.startswith("on") for _, attrs in reader.elements for name in attrs)


@pytest.mark.slow
def test_invisible_characters_are_shown_as_code_points(made):
    rows = made.rows()
    rows["problems"][0]["source"] = "x = 1  # \u202e\u2066 reversed\n"
    page = page_html(made.build(rows))
    assert "\u202e" not in page
    assert "# &lt;U+202E&gt;&lt;U+2066&gt; reversed" in page


def test_hostile_text_is_not_a_template(hostile_page):
    assert "{{7*7}}" in hostile_page


def test_hostile_text_makes_no_element_in_the_summary(hostile):
    shown = summary_markdown(hostile)
    assert "<script" not in shown
    assert "<img" not in shown


def test_sources_are_shown_unchanged(hostile, hostile_page):
    shown = set(Reader(hostile_page).codes)
    admitted = hostile.problems.filter(hostile.problems["admitted"])
    assert set(admitted["source"].to_list()) <= shown


@pytest.mark.slow
def test_the_page_needs_no_external_resource(page):
    for tag, attrs in Reader(page).elements:
        assert tag not in {"script", "link", "img", "iframe"}
        assert "src" not in attrs
        for name in ("href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith("#")
    assert "@import" not in page
    assert "default-src 'none'" in page


@pytest.mark.slow
def test_every_link_of_the_page_has_a_target(page):
    elements = Reader(page).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"] for tag, attrs in elements if tag == "a"}
    assert {f"#{name}" for name in ids} >= targets


def test_each_problem_has_a_link_that_opens_its_section(page):
    """Browsers open what is closed around the target of a link, not the target itself."""
    elements = Reader(page).elements
    targets = [tag for tag, attrs in elements if (attrs.get("id") or "").startswith("problem-")]
    links = [
        attrs["href"] for tag, attrs in elements if tag == "a" and "#problem-" in attrs["href"]
    ]
    assert len(links) == len(targets) > 30
    assert "details" not in targets


def test_the_page_has_styles_for_light_and_dark_and_for_phones(page):
    assert page.count("prefers-color-scheme: dark") == 2
    assert 'name="viewport"' in page


def test_every_chapter_of_an_empty_report_says_that_it_has_nothing_yet(empty):
    html = page_html(empty)
    assert html.count('class="nothing"') >= 12
    assert "nan" not in html.lower().replace("provenance", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "absent",
    [
        "completions",
        "candidates",
        "verdicts",
        "flags",
        "null_test",
        "transferred",
        "samples",
        "steps",
    ],
)
def test_a_run_without_one_kind_of_fact_still_has_a_report(made, absent):
    rows = made.rows()
    rows[absent] = []
    html = page_html(made.build(rows))
    assert html.endswith("</html>")
    assert summary_markdown(made.build(rows))


def test_a_missing_source_of_a_best_candidate_is_mentioned(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c")]})
    assert "The source was not handed over" in page_html(given)


def test_each_kind_of_hack_shows_one_example(realistic, page):
    kinds = realistic.flags["kind"].unique().to_list()
    assert len(kinds) > 3
    for kind in kinds:
        assert f'<span class="what">{kind}</span>' in page


def test_contract_and_mode_stand_beside_the_protocol(realistic, page):
    protocol = realistic.provenance.protocol
    said = f"({terms(protocol)})"
    assert f"<code>{protocol.id}</code> {said}" in page
    assert f"protocol {protocol.id} {said}" in summary_markdown(realistic)


def test_properties_and_invariants_are_on_the_page(realistic, page):
    title = property_table(realistic).title
    assert title in page
    assert title in summary_markdown(realistic)
    assert "In every draw of its inputs: input 0: lower triangular; input 1: whole numbers." in page
    assert "Restricted in use: " in page


def test_success_without_timing_makes_a_report(made):
    given = made.build(
        {
            "problems": [made.problem(split="heldout")],
            "verdicts": [made.verdict("p11", "c", None)],
            "completions": [made.answer("p11", "c", stage="rl", provider="policy")],
        }
    )
    assert "no timed success" in page_html(given)


def test_the_best_source_of_each_problem_is_shown_unchanged(realistic, page):
    shown = set(Reader(page).codes)
    sources = dict(realistic.candidates.select("candidate_id", "source").iter_rows())
    best = facts.best(realistic)["candidate_id"].drop_nulls().to_list()
    assert best
    assert {sources[name] for name in best} <= shown


def test_lines_that_only_one_source_has_are_marked(page):
    tags = [tag for tag, _ in Reader(page).elements]
    assert tags.count("ins") > 10
    assert tags.count("del") > 10


def test_every_table_has_a_caption_and_every_cell_has_its_heading(page):
    reader = Reader(page)
    heads = [attrs.get("scope") for tag, attrs in reader.elements if tag == "th"]
    assert set(heads) == {"col", "row"}
    assert page.count("<table") == page.count('role="region" aria-label=')


def test_the_other_convention_for_failures_is_folded_away_without_a_script(page):
    elements = Reader(page).elements
    folded = [
        attrs for tag, attrs in elements if tag == "details" and attrs.get("class") == "table"
    ]
    assert len(folded) == page.count(", a failure as 0×</span>") == 3
    assert not any("open" in attrs for attrs in folded)


@pytest.mark.slow
def test_a_page_of_a_long_run_is_small_and_names_its_omissions(made):
    """The largest suite with a section a problem, endless sources, and 10 candidates each."""
    numbers = range(1, NUM_PROBLEMS + 3)
    source = "x = 1  # and much more of the kind\n" * 3_000
    ids = [(f"p1{number}", f"c{number}-{i}") for number in numbers for i in range(10)]
    given = made.build(
        {
            "problems": [made.problem(number, source=source) for number in numbers],
            "candidates": [
                {"candidate_id": name, "problem_id": problem, "source": source}
                for problem, name in ids
            ],
            "verdicts": [
                made.verdict(problem, name, 1 + i / 9e3) for i, (problem, name) in enumerate(ids)
            ],
            "completions": [made.answer(problem, name) for problem, name in ids],
        }
    )
    html = page_html(given)
    assert len(html) < 12_000_000
    assert "2 problems with smaller speedups are left out" in html
    assert "further lines are left out" in html


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _palettes() -> list[dict[str, str]]:
    """Return the page's colours by name, light and dark."""
    style = (files("cudal1.report") / "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in style.split("@media", 2)[:2]
    )
    return [light, dark]


@pytest.mark.parametrize("palette", _palettes(), ids=["light", "dark"])
def test_text_is_readable_on_every_background(palette):
    """The contrast is at least 4.5 to 1, as WCAG demands of text of this size."""
    pairs = [
        (text, ground)
        for text in ("ink", "muted", "accent", "good", "bad")
        for ground in ("ground", "raised")
    ] + [("ink", ground) for ground in ("null", "code", "gone", "new")]
    for text, ground in pairs:
        low, high = sorted(_luminance(palette[name]) for name in (text, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)
