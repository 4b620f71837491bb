"""Show what a run of `cudal1 optimize` has found: the answer's lines, and the page."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cudal1.cli.verdicts.show import Row, verdict_rows
from cudal1.cli.verdicts.show_search import best_in_words
from cudal1.program.backends import in_words
from cudal1.protocol import Mode

if TYPE_CHECKING:
    from cudal1.cli.optimizing.wanted import Looked, Wanted
    from cudal1.kept import Kept, Proof
    from cudal1.ledger import Ledger
    from cudal1.services.optimizing.places import Places
    from cudal1.services.optimizing.state import State

MODES = {
    Mode.EVAL: "in evaluation mode",
    Mode.TRAIN: "in training mode",
    Mode.CONSTRUCTED: "in the mode of a new module; --mode eval proves it for evaluation",
}
"""The calls for which a version was proven, by its protocol's mode."""


def answer_rows(wanted: Wanted, looked: Looked, state: State, kept: Kept | None) -> list[Row]:
    """Return the lines of the answer."""
    places = wanted.places
    report = Row("report", str(places.report))
    if kept is None:
        said = "no version was proven faster"
        if state.gains:
            said += f"; {best_in_words(state)} was not confirmed by a second measurement"
        return [Row("verdict", said, "bold yellow"), report]
    proof = next(proof for proof in kept.proofs if proof.problem_id == looked.problem.id)
    rows = [*verdict_rows(proof.verdict, wanted.settings), Row("kept", str(places.version))]
    if kernels := in_words(places.version.read_text(encoding="utf-8")):
        rows.append(Row("kernels", f"{kernels} (by its source)"))
    if kept.replaces is not None:
        rows.append(Row("apply", _apply_in_words(kept.replaces, proof)))
    return [*rows, report, Row("again", wanted.again)]


def _apply_in_words(replaces: str, proof: Proof) -> str:
    """Return what `cudal1.apply` will do with a version that replaces a class."""
    from cudal1.applying.proven import restriction

    if said := restriction(proof):
        return f"cudal1.apply leaves it out: {said}"
    return f"cudal1.apply calls it for {replaces} {MODES[proof.protocol.mode]}"


def write_page(
    wanted: Wanted,
    looked: Looked,
    ledger: Ledger,
    state: State,
    kept: Kept | None,
    rows: list[Row],
    stopped: str,
) -> None:
    """Write the page of a run."""
    from cudal1.report.optimized import optimized_html
    from cudal1.services.keeping import versions_of
    from cudal1.services.optimizing.places import written
    from cudal1.services.optimizing.reporting import page_input

    places, settings = wanted.places, wanted.settings
    given = page_input(
        ledger,
        looked.problem,
        state,
        module=places.module.name,
        headline=rows[0].text,
        facts={
            "device": looked.device.kind,
            "protocol": f"{settings.name} {settings.protocol.id}",
            "again": wanted.again,
            **versions_of(looked.device),
        },
        verdict=() if kept is None else tuple((row.label, row.text) for row in rows),
        version=None if kept is None else places.version.read_text(encoding="utf-8"),
        profile=looked.profile,
        invariants=looked.invariants,
        stopped=stopped,
    )
    written(places.report, optimized_html(given))


def again(places: Places, options: dict[str, object]) -> str:
    """Return the command that judges a kept version under the same options."""
    words = ["cudal1", "judge", places.module.name, places.version.name]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)
