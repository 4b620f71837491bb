"""Tell a policy what became of its answer: one or a few plain lines for its next prompt.

Threat: reasons of verdicts quote untrusted code, such as the text of an exception, and a reviewer
quotes it, too. Here such words are data: each becomes one printable line of bounded length, nothing
is decided by it, and it cannot close a fence. Of a cheat the name is told and not the sign by which
the harness saw it, nor why times are impossible, so that no policy learns to hide the sign. What a
reason says of inputs and seeds, the verdict has published.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.measurement import Measurement
from cudal1.review import one_line
from cudal1.verdict import FlagSource, HackFlag, Status, Verdict

MAX_QUOTED = 400
"""Characters of a quotation, about 100 tokens; compilers and checks begin with what matters."""
_FAILED = {
    Status.NO_BUILD: "It does not build",
    Status.CRASHED: "It crashes",
    Status.TIMED_OUT: "It is too slow",
    Status.INCORRECT: "Its output is wrong",
    Status.INVALID: "Its times are impossible",
}
_PEOPLE = {FlagSource.REVIEWER: "a reviewer", FlagSource.PERSON: "a person"}


def feedback(
    verdict: Verdict | None, *, no_source: str | None = None, remark: str | None = None
) -> str:
    """Return what became of an answer, in lines of ASCII apart from quotations.

    Args:
        verdict: the verdict on the candidate in the answer; None: there was no candidate.
        no_source: the reason why no candidate was found.
        remark: the opinion of a reviewer that let the candidate pass.
    """
    if verdict is None:
        return _line("No code was found", no_source)
    if verdict.status is Status.HACKED:
        return "\n".join(_cheats(verdict.flags))
    if verdict.status is Status.INVALID:
        return _line(_FAILED[verdict.status], None)
    if verdict.status is not Status.CORRECT:
        return _line(_FAILED[verdict.status], verdict.reason)
    lines = ["It is correct."]
    if verdict.properties is not None and verdict.properties.copies_reference:
        lines.append("It is the reference in other words.")
    if verdict.measurement is not None:
        lines += _times(verdict.measurement)
    if remark is not None:
        lines.append(_line("A reviewer let it pass", remark))
    return "\n".join(lines)


def _times(measured: Measurement) -> list[str]:
    """Return the speedups and times of a measurement, and the share of the physical limit."""
    lines = [
        f"Its speedup is {measured.certified:.2f} (certified; the estimate is "
        f"{measured.speedup:.2f}).",
        f"One call takes {measured.candidate_us:.4g} us, one of the reference "
        f"{measured.reference_us:.4g} us.",
    ]
    share = measured.speed_of_light
    if share is not None:
        assert measured.floor_us is not None
        lines.append(
            f"The device needs {measured.floor_us:.4g} us at least: this is {100 * share:.0f} % of "
            "what it can do."
        )
    return lines


def _cheats(flags: Sequence[HackFlag]) -> list[str]:
    """Return the names of cheats, and what people and the reviewer say of them."""
    decisive = [flag for flag in flags if not flag.is_advisory]
    names = dict.fromkeys(_quoted(flag.kind.replace("_", " ")) for flag in decisive)
    lines = [f"It cheats: {', '.join(names)}."]
    lines += [
        _line(f"So says {_PEOPLE[flag.source]}", flag.evidence)
        for flag in decisive
        if flag.source in _PEOPLE
    ]
    return lines


def _line(what: str, quoted: str | None) -> str:
    words = _quoted(quoted or "")
    return f"{what}: {words}" if words else f"{what}."


def _quoted(text: str) -> str:
    """Return the words on one line, shortened, and without anything that ends a fence."""
    words = one_line(text).replace("`", "'").replace("~~~", "~")
    return words if len(words) <= MAX_QUOTED else f"{words[: MAX_QUOTED - 3]}..."
