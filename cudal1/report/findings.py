"""Five generated sentences say what a run shows, with intervals, regressions included.

Each sentence answers one question, in this order: what was gained, which policy is best, what each
stage changed, which method finds most, and whether the harness can be believed. Where there is no
answer yet, the sentence says so. The page, the summary, the log's end, Prefect and MLflow show the
same sentences.

Intervals are 95 %, of a bootstrap over problems (`cudal1.selection.intervals`).
"""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from statistics import fmean, median

from cudal1.report import facts
from cudal1.report.headline import numbers
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, times
from cudal1.report.policies import Policy, before, best_policy, examined
from cudal1.report.tables.contenders import comparison
from cudal1.selection import budget, intervals
from cudal1.selection.intervals import Interval
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP

NAMES = {"base": "the untrained policy", "rl": "contrastive RL"}
"""Words in place of labels of policies, for readers new to the stages."""
FINE_TUNED = "sft"
"""Stage 1: the last policy is compared with the one that this stage leaves."""


def findings(given: ReportInput) -> tuple[str, ...]:
    """Return the five sentences."""
    return (_gain(given), _best(given), _changes(given), _methods(given), _trust(given))


def _gain(given: ReportInput) -> str:
    found = numbers(given)
    count = found["num_problems"]
    if not count or not found["num_successful"]:
        return "No problem has a correct candidate yet."
    had = found["mean_speedup_failed_as_1"]
    unsolved = "a problem without a correct candidate counts as 1×"
    if not found["num_again"]:
        return (
            f"The best candidates of {count:,} problems had a mean speedup of {times(had)} when "
            f"they were chosen, partly by luck; {unsolved}; no second measurement says how much of "
            "it lasts."
        )
    rows = facts.measured_again(given).select("problem_id", "again").iter_rows()
    second = {problem: 1.0 if again is None else again for problem, again in rows}
    over = intervals.mean({problem: [again] for problem, again in second.items()})
    now = found["mean_again_failed_as_1"]
    luck = ", partly by luck" if had > now else ""
    return (
        f"Measured again, the best candidates of {count:,} problems have a mean speedup of "
        f"{times(now)}{_range(over)}, {times(median(second.values()))} in the middle, and "
        f"{found['num_meaningful_again']:,} of them are faster than {MEANINGFUL_SPEEDUP:g}×; when "
        f"they were chosen the mean was {times(had)}{luck}; {unsolved}."
    )


def _best(given: ReportInput) -> str:
    policies, best = examined(given), best_policy(given)
    if best is None:
        return "No policy was examined on held-out problems yet."
    first, last = policies[0], policies[-1]
    asked = f"{_counted(best.num_answers, 'answer')} to {len(best.rewards):,} held-out problems"
    if not any(policy.success for policy in policies):
        return f"No policy solved anything with {asked}, so none is the best."
    mark = f"mean reward {best.reward:.2f}{_range(intervals.mean(best.rewards))}"
    share = f"{percent(best.success)} success"
    if len(policies) == 1:
        return f"The only policy so far, {_name(best)}, has {mark} and {share} with {asked}."
    said = f"The best of {len(policies)} policies with {asked} is {_name(best)}: {mark}, {share}"
    if best.label == first.label:
        said += "; no training improved on it"
    else:
        said += f", where {_name(first)} has {first.reward:.2f} and {percent(first.success)}"
        gain = intervals.difference(best.rewards, first.rewards)
        if gain is None or not gain.is_above:
            said += ", which may be luck"
    if best.label != last.label:
        said += f"; {_name(last)}, the last, has {last.reward:.2f} and {percent(last.success)}"
    return f"{said}; the marks of the best flatter it a little, since they choose it."


def _changes(given: ReportInput) -> str:
    policies = examined(given)
    pairs = [(after, before(given, after)) for after in policies]
    compared = [(after, earlier) for after, earlier in pairs if earlier is not None]
    best = best_policy(given)
    if not compared or best is None:
        return "No stage can be compared with the one before it yet."
    told = [policy.stage for policy in pairs[-1] if policy is not None]
    for other in policies:
        if other.stage not in told and (other.stage == FINE_TUNED or other is best):
            compared.append((policies[-1], other))
    clauses: list[str] = []
    alike: list[str] = []
    for after, earlier in compared:
        if after.rewards == earlier.rewards:
            alike.append(f"between {_name(after)} and {_name(earlier)}")
        else:
            clauses.append(_compared(after, earlier))
    if alike:
        clauses.append(f"no answer's reward differs {', or '.join(alike)}")
    return f"Mean reward on the same held-out problems: {'; '.join(clauses)}."


def _compared(after: Policy, earlier: Policy) -> str:
    """Return one clause: better, worse, or no difference shown."""
    found = intervals.difference(after.rewards, earlier.rewards)
    names = _name(after), _name(earlier)
    if found is None:
        return f"{names[0]} and {names[1]} share too few problems to compare"
    if found.is_above:
        return f"{names[0]} is better than {names[1]} by {found.value:.2f}{_range(found)}"
    if found.is_below:
        worse = f"({-found.high:.2f} to {-found.low:.2f})"
        return f"{names[0]} is worse than {names[1]} by {-found.value:.2f} {worse}"
    between = f"{found.value:+.2f}, {found.low:+.2f} to {found.high:+.2f}"
    return f"no difference is shown between {names[0]} and {names[1]} ({between})"


def _name(policy: Policy) -> str:
    """Return a policy's name for readers new to the stages."""
    return NAMES.get(policy.label, policy.label)


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
    given_to = (
        f"With {_counted(among.num_answers, 'answer')} to each of {len(among.problems):,} problems"
    )
    reached = f"({times(ends[top])} in the mean, a failure as 0×)"
    if top == first:
        return (
            f"{given_to}, no other of {len(ends)} methods is ahead of {first}, which shows no "
            f"earlier answers {reached}."
        )
    said = f"{given_to}, {top} finds the most of {len(ends)} methods {reached}"
    ratio = budget.ratio(bests[top], bests[first])
    if ratio is None:
        return f"{said}; {first}, which shows no earlier answers, finds nothing."
    told = "" if ratio.low > 1 else ", so no difference is shown"
    return (
        f"{said}: {ratio.value:.2f} times as much as {first}, which shows no earlier answers "
        f"({ratio.low:.2f} to {ratio.high:.2f}{told})."
    )


def _trust(given: ReportInput) -> str:
    found = numbers(given)
    cheats = (
        f"{found['num_hacked'] or 'none'} of {_counted(found['num_verdicts'], 'judged candidate')} "
        "cheated, as far as is known"
    )
    if not found["num_null_tests"]:
        return f"The null test has not been run; {cheats}."
    if "max_null_certified" not in found:
        return f"The null test failed: no reference was judged correct; {cheats}."
    above, wrong = found["num_null_above_meaningful"], found["num_null_not_correct"]
    said = (
        f"Null test: {above or 'none'} of {_counted(found['num_null_tests'], 'reference')}, judged "
        f"as candidates, gained more than {MEANINGFUL_SPEEDUP:g}× (the most: "
        f"{times(found['max_null_certified'])})"
    )
    if wrong:
        said += f", and {wrong:,} were not correct"
    return f"{said}; {cheats}."


def _counted(count: float, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _range(found: Interval | None) -> str:
    return "" if found is None else f" ({found.low:.2f} to {found.high:.2f})"
