"""Five generated sentences say what a run shows, with intervals, regressions included.

Each sentence answers one question, in this order: what was gained, which policy is best, what each
stage changed, which method finds most, and whether the harness can be believed. Where there is no
answer yet, the sentence says so. The page, the summary, the log's end, Prefect and MLflow show the
same sentences.

Intervals are 95 %, of a bootstrap over problems (`cudal1.selection.intervals`).
"""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from statistics import fmean

from cudal1.report import facts
from cudal1.report.headline import numbers
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, times
from cudal1.report.policies import Policy, before, best_policy, examined
from cudal1.report.tables.contenders import comparison
from cudal1.selection import budget, intervals
from cudal1.selection.intervals import Interval
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP


def findings(given: ReportInput) -> tuple[str, ...]:
    """Return the five sentences."""
    return (_gain(given), _best(given), _changes(given), _methods(given), _trust(given))


def _gain(given: ReportInput) -> str:
    found = numbers(given)
    count = found["num_problems"]
    if not count or not found["num_successful"]:
        return "No problem has a correct candidate yet."
    had = f"{times(found['mean_speedup_failed_as_1'])} when they were chosen, partly by luck"
    if not found["num_again"]:
        return (
            f"The best candidates of {count:,} problems had a mean speedup of {had}; no second "
            "measurement says how much of it lasts."
        )
    second = facts.measured_again(given).select("problem_id", "again").iter_rows()
    over = intervals.mean({problem: [1.0 if again is None else again] for problem, again in second})
    return (
        f"Measured again, the best candidates of {count:,} problems have a mean speedup of "
        f"{times(found['mean_again_failed_as_1'])}{_range(over)}, a problem without one as 1×, "
        f"and more than {MEANINGFUL_SPEEDUP:g}× for {found['num_meaningful_again']:,} of them; it "
        f"was {had}."
    )


def _best(given: ReportInput) -> str:
    policies, best = examined(given), best_policy(given)
    if best is None:
        return "No policy was examined on held-out problems yet."
    mark = f"mean reward {best.reward:.2f}{_range(intervals.mean(best.rewards))}"
    share = f"{percent(best.success)} success"
    first, last = policies[0], policies[-1]
    if len(policies) == 1:
        return f"The only policy so far, {best.label}, has {mark} and {share} on held-out problems."
    said = f"The best of {len(policies)} policies on held-out problems is {best.label}: {mark}, "
    said += share
    if best.label == first.label:
        said += "; no training improved on it"
    else:
        said += f", where {first.label} has {first.reward:.2f} and {percent(first.success)}"
    if best.label != last.label:
        said += f"; {last.label}, the last, has {last.reward:.2f} and {percent(last.success)}"
    return f"{said}; since these marks choose it, they flatter it a little."


def _changes(given: ReportInput) -> str:
    policies = examined(given)
    pairs = [(after, before(given, after)) for after in policies]
    steps = [_compared(after, earlier) for after, earlier in pairs if earlier is not None]
    best = best_policy(given)
    if not steps or best is None:
        return "No stage can be compared with the one before it yet."
    if best not in pairs[-1]:
        steps.append(_compared(policies[-1], best))
    return f"By mean reward, on the same held-out problems: {'; '.join(steps)}."


def _compared(after: Policy, earlier: Policy) -> str:
    """Return one clause: better, worse, or not told apart."""
    found = intervals.difference(after.rewards, earlier.rewards)
    names = after.label, earlier.label
    if found is None:
        return f"{names[0]} and {names[1]} share too few problems to compare"
    if found.is_above:
        return f"{names[0]} is better than {names[1]} by {found.value:.2f}{_range(found)}"
    if found.is_below:
        worse = f"({-found.high:.2f} to {-found.low:.2f})"
        return f"{names[0]} is worse than {names[1]} by {-found.value:.2f} {worse}"
    between = f"{found.value:+.2f}, {found.low:+.2f} to {found.high:+.2f}"
    return f"{names[0]} is not told apart from {names[1]} ({between})"


def _methods(given: ReportInput) -> str:
    among = comparison(given)
    if len(among.contenders) < 2:
        return "No two methods were given the same problems yet."
    bests = {
        each.label: {
            problem: [max(rewards, default=0.0)]
            for problem, rewards in each.rewards(among.problems, among.num_answers).items()
        }
        for each in among.contenders
    }
    first = among.contenders[0].label
    ends = {label: fmean(top for (top,) in found.values()) for label, found in bests.items()}
    top = max(ends, key=lambda label: ends[label])
    said = (
        f"With {among.num_answers:,} answers to each of {len(among.problems):,} problems, {top} "
        f"finds the most ({times(ends[top])}, a failure as 0×)"
    )
    if top == first:
        return f"{said}, which shows no exemplars; no other of {len(ends)} methods is ahead."
    ratio = budget.ratio(bests[top], bests[first])
    if ratio is None:
        return f"{said}; {first} finds nothing."
    told = "" if ratio.low > 1 else ", so they are not told apart"
    return (
        f"{said}: {ratio.value:.2f} times as much as {first} "
        f"({ratio.low:.2f} to {ratio.high:.2f}{told})."
    )


def _trust(given: ReportInput) -> str:
    found = numbers(given)
    cheats = (
        f"caught cheating: {found['num_hacked']:,} of {found['num_verdicts']:,} judged candidates"
    )
    if not found["num_null_tests"]:
        return f"The null test has not been run; {cheats}."
    if "max_null_certified" not in found:
        return f"The null test failed: no reference was judged correct; {cheats}."
    above, wrong = found["num_null_above_meaningful"], found["num_null_not_correct"]
    said = (
        f"Null test: of {found['num_null_tests']:,} references that were judged as candidates "
        f"{above or 'none'} gained more than {MEANINGFUL_SPEEDUP:g}× (the most: "
        f"{times(found['max_null_certified'])})"
    )
    if wrong:
        said += f", and {wrong:,} were not correct"
    return f"{said}; {cheats}."


def _range(found: Interval | None) -> str:
    return "" if found is None else f" ({found.low:.2f} to {found.high:.2f})"
