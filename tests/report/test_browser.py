"""Tests of the page in a real browser; `apt-get install chromium` brings one."""

from __future__ import annotations

import pytest

from cudal1.report.page import page_html
from tests.report.browser import CHROMIUM, browser
from tests.report.test_page import hostile_input

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
WINDOWS = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def tab():
    with browser() as tab:
        yield tab


@pytest.fixture(scope="module")
def url(realistic, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page_html(realistic), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def hostile_url(made, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    path.write_text(page_html(hostile_input(made)), encoding="utf-8")
    return path.as_uri()


def test_no_element_extends_beyond_the_window(tab, url, hostile_url):
    for page in (url, hostile_url):
        for width, scheme in WINDOWS:
            tab.show(page, width=width, scheme=scheme)
            tab.ask("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert tab.ask("document.documentElement.scrollWidth") <= width, (page, width)


def test_the_background_follows_the_readers_preference(tab, url):
    grounds = {}
    for scheme in ("light", "dark"):
        tab.show(url, width=390, scheme=scheme)
        grounds[scheme] = tab.ask("getComputedStyle(document.body).backgroundColor")
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}


def test_the_browser_has_no_complaints(tab, url):
    tab.problems.clear()
    tab.show(url, width=1280, scheme="light")
    assert tab.problems == []


def test_hostile_text_runs_no_script(tab, hostile_url):
    tab.problems.clear()
    tab.show(hostile_url, width=1280, scheme="light")
    assert tab.ask("document.scripts.length + document.images.length") == 0
    assert tab.problems == []


def test_a_link_to_a_problem_opens_its_section(tab, url):
    tab.show(url, width=390, scheme="light")
    anchor = tab.ask("document.querySelector('[id^=problem-]').id")
    tab.show(f"{url}#{anchor}", width=390, scheme="light")
    assert tab.ask(f"document.getElementById('{anchor}').closest('details').open")
    assert tab.ask("document.querySelectorAll('details[open]').length") == 1
