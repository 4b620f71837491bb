"""What is shown beside its source."""

from __future__ import annotations

from cudal1.report.exhibits import hack_exhibits


def test_a_cheat_that_was_only_checked_is_shown_with_its_problem(made):
    checks = made.build({}).provenance.protocol.checks_only().id
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [made.verdict("p11", "a", status="hacked", protocol_id=checks)],
        "flags": [made.flag("a") | {"protocol_id": checks}],
    })  # fmt: skip
    (exhibit,) = hack_exhibits(given)
    assert exhibit.problem == "cudal1/L1/01_softmax"
