"""Collect an audit's findings on each row: verdicts, plain check and KernelBench's evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.release.causes import cause, one_line
from benchmarks.release.checking import Checked, Outcome
from benchmarks.release.rows import Entry
from cudal1.measurement import Doubt
from cudal1.protocol import Mode, PrecisionClass
from cudal1.verdict import Status, Verdict

NARROWER = (PrecisionClass.STRICT, PrecisionClass.TF32)
"""Classes asked about rows that are correct in the loosest class, in this order."""


@dataclass(frozen=True)
class Finding:
    """The findings on one row; None for what has not been asked yet."""

    entry: Entry
    verdict: Verdict | None
    """Verdict as the modules are constructed, in the loosest class."""
    refusal: str | None
    """Reason for which its reference cannot be judged."""
    eval_verdict: Verdict | None
    """Verdict in evaluation mode, where it was judged in it, too."""
    checks: Mapping[Mode, Checked]
    """Results of the plain check, by mode."""
    evaluation: dict[str, Any] | None
    """Result of KernelBench's evaluator."""
    in_classes: Mapping[PrecisionClass, bool] = field(default_factory=dict[PrecisionClass, bool])
    """True for narrower classes in which it is correct, as far as they were asked."""

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is left to ask cudal1."""
        return self.verdict is not None or self.refusal is not None

    @property
    def is_correct(self) -> bool:
        """Return whether it is correct as constructed."""
        return self.verdict is not None and self.verdict.is_successful

    @property
    def is_weak(self) -> bool:
        """Return whether it is correct, and no gain counts because its reference is weak."""
        judged = self.eval_verdict if self.is_correct_in_eval_only else self.verdict
        measured = judged.measurement if judged else None
        return measured is not None and measured.doubt is Doubt.REFERENCE

    @property
    def is_correct_in_eval_only(self) -> bool:
        """Return whether it is correct in evaluation mode and not as constructed."""
        judged = self.eval_verdict
        return not self.is_correct and judged is not None and judged.is_successful

    @property
    def precision(self) -> PrecisionClass | None:
        """Return the narrowest class in which it is correct; None: not correct, or unknown."""
        if not self.is_correct:
            return None
        for each in NARROWER:
            if self.in_classes.get(each, True):
                return each if each in self.in_classes else None
        return PrecisionClass.HALF

    @property
    def certified(self) -> float | None:
        """Return its certified speedup; None where it is not correct, weak, or was not timed."""
        return self.verdict.speedup if self.verdict and not self.is_weak else None

    @property
    def estimate(self) -> float | None:
        """Return the estimate of its speedup, on which a certificate is a bound."""
        measured = self.verdict.measurement if self.verdict else None
        return measured.speedup if measured else None

    @property
    def outcome(self) -> Outcome | None:
        """Return the result of the plain check as constructed."""
        checked = self.checks.get(Mode.CONSTRUCTED)
        return checked.outcome if checked else None

    @property
    def called(self) -> str:
        """Return cudal1's word for it: a status, or the reason for none in a word or two."""
        if self.verdict is not None:
            return self.verdict.status.value
        return "refused reference" if self.refusal is not None else "not judged"

    @property
    def why(self) -> str | None:
        """Return the reason for which it is not called correct, in one line."""
        if self.verdict is not None and self.verdict.reason is not None:
            return one_line(self.verdict.reason)
        return one_line(self.refusal) if self.refusal is not None else None

    @property
    def is_disputed(self) -> bool:
        """Return whether cudal1 and the plain check disagree on it."""
        if not self.is_settled or self.outcome in (None, Outcome.NO_REFERENCE, Outcome.NEAR):
            return False
        return self.is_correct != (self.outcome is Outcome.AGREES)

    def as_dict(self) -> dict[str, Any]:
        """Return it as it is kept: names, numbers and our own words, none of the code."""
        found: dict[str, Any] = {
            "row": self.entry.name,
            "candidate_id": self.entry.candidate_id,
            "claim": self.entry.claim,
            "called": self.called,
            "why": self.why,
            "class": None if self.precision is None else self.precision.value,
            "verdict": _verdict(self.verdict),
            "check": {mode.value: _check(checked) for mode, checked in self.checks.items()},
            "kernelbench": _evaluation(self.evaluation),
        }
        if self.eval_verdict is not None:
            found["verdict_in_eval"] = _verdict(self.eval_verdict)
        return found


def wants_eval(finding: Finding) -> bool:
    """Return whether a row is to be judged in evaluation mode, too.

    The authors' own script compares outputs in that mode. So what is not correct as constructed,
    and agrees in that mode, is judged as they ran it.
    """
    in_eval = finding.checks.get(Mode.EVAL)
    return (
        finding.verdict is not None
        and not finding.is_correct
        and in_eval is not None
        and in_eval.outcome is Outcome.AGREES
    )


def properties_of(verdict: Verdict) -> dict[str, bool | None]:
    """Return the properties on a correct verdict, by name."""
    return {} if verdict.properties is None else verdict.properties.model_dump(mode="json")


def claims(findings: Sequence[Finding]) -> list[float]:
    """Return the claims of the rows that have one."""
    return [finding.entry.claim for finding in findings if finding.entry.claim is not None]


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    checked, measured = verdict.correctness, verdict.measurement
    found: dict[str, Any] = {
        "status": verdict.status.value,
        "cause": cause(verdict),
        "reason": None if verdict.reason is None else one_line(verdict.reason),
        "flags": sorted({flag.kind for flag in verdict.flags if not flag.is_advisory}),
        "judge_s": round(verdict.judge_s, 3),
    }
    if checked is not None:
        found |= {"num_inputs": checked.num_inputs, "relative_l2": checked.max_relative_l2}
    if measured is not None:
        found |= {
            "certified": measured.certified,
            "estimate": measured.speedup,
            "lower": measured.lower,
            "upper": measured.upper,
            "is_stable": measured.is_stable,
            "is_confirmed": measured.is_confirmed,
            "doubt": None if measured.doubt is None else measured.doubt.value,
            "reference_us": measured.reference_us,
            "candidate_us": measured.candidate_us,
        }
    if verdict.status is Status.CORRECT:
        found["properties"] = properties_of(verdict)
    return found


def _check(checked: Checked) -> dict[str, Any]:
    return {
        "outcome": checked.outcome.value,
        "relative_l2": checked.relative_l2,
        "allclose": checked.allclose,
        "reason": None if checked.reason is None else one_line(checked.reason),
        "leaves_inputs": checked.leaves_inputs,
        "fresh_outputs": checked.fresh_outputs,
    }


def _evaluation(line: dict[str, Any] | None) -> dict[str, Any] | None:
    if line is None:
        return None
    speedup = None
    if line["correct"] and line.get("candidate_ms", 0) > 0 and line.get("reference_ms", 0) > 0:
        speedup = line["reference_ms"] / line["candidate_ms"]
    return {
        "compiled": line["compiled"],
        "correct": line["correct"],
        "speedup": speedup,
        "reason": one_line(line["reason"]),
        "wall_s": round(line["wall_s"], 2),
    }
