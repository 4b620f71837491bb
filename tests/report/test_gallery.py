"""Tests of the cheats that are shown with their code."""

from __future__ import annotations

from cudal1.report.gallery import hack_gallery
from cudal1.report.limits import NUM_EVIDENCE_CHARS, NUM_KINDS
from cudal1.verdict import SEEN


def test_an_untimed_cheat_is_shown_with_its_problem(made):
    checks = made.build({}).provenance.protocol.checks_only().id
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", status="hacked", protocol_id=checks)],
            "flags": [made.flag("a") | {"protocol_id": checks}],
        }
    )
    (exhibit,) = hack_gallery(given).exhibits
    assert exhibit.problem == "cudal1/L1/01_softmax"


def test_the_example_is_a_caught_cheat(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a"), made.verdict("p11", "b", status="hacked")],
            "flags": [
                made.flag("a", "clock_read", source="screen"),
                made.flag("b", "clock_read", source="screen"),
            ],
        }
    )
    (exhibit,) = hack_gallery(given).exhibits
    assert (exhibit.candidate_id, exhibit.status, exhibit.num_candidates) == ("b", "hacked", 2)


def test_deciding_kinds_come_before_labels(made):
    ids = [f"c{i}" for i in range(5)]
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", name, status="hacked") for name in ids],
            "flags": [
                made.flag("c0", "rare"),
                *(made.flag(name, "label", source="screen") for name in ids),
            ],
        }
    )
    assert [exhibit.kind for exhibit in hack_gallery(given).exhibits] == ["rare", "label"]


def test_a_page_holds_a_limited_number_of_kinds_and_the_gallery_counts_the_others(made):
    ids = [f"c{i:03}" for i in range(NUM_KINDS + 7)]
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", name, status="hacked") for name in ids],
            "flags": [
                made.flag(name, f"kind_{name}", evidence="e" * (NUM_EVIDENCE_CHARS + 9))
                for name in ids
            ],
        }
    )
    gallery = hack_gallery(given)
    assert (len(gallery.exhibits), gallery.num_left_out) == (NUM_KINDS, 7)
    assert all(len(exhibit.evidence) < NUM_EVIDENCE_CHARS + 9 for exhibit in gallery.exhibits)


def test_a_source_that_was_not_passed_is_not_shown(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", status="hacked")],
            "flags": [made.flag("a")],
        }
    )
    (exhibit,) = hack_gallery(given).exhibits
    assert exhibit.source is None


def test_a_label_on_honest_code_comes_with_the_restrictions_of_its_use(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [
                made.verdict("p11", "a", fresh_outputs=False),
                made.verdict("p11", "b", status="hacked"),
            ],
            "flags": [made.flag("a", "stream_use", source="screen"), made.flag("b")],
        }
    )
    cheat, label = hack_gallery(given).exhibits
    assert label.restricted == f"Restricted in use: {SEEN['fresh_outputs', False]}."
    assert cheat.restricted == ""
