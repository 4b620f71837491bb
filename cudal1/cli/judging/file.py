"""Answer for a file of candidates, or a suite's baselines, on the devices that there are."""

from __future__ import annotations

from pathlib import Path

from cudal1.baseline import Baseline, on
from cudal1.cli.judging.asks import Asks, OfMany
from cudal1.cli.judging.devices import devices_of_one_kind
from cudal1.cli.options.settings import Settings
from cudal1.cli.options.suites import load_named
from cudal1.cli.terminal.answer import answer
from cudal1.cli.terminal.ending import BAD, GOOD, INTERRUPTED, fail, say
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass


def _named_baselines(names: str | None, device_class: DeviceClass) -> list[Baseline]:
    """Return the baselines that an option names, in their own order.

    Raises:
        ConfigError: there is none of that name, or the device cannot run it.
    """
    possible = on(device_class)
    if names in ("all", "none"):
        return possible if names == "all" else []
    found: set[Baseline] = set()
    for name in (names or Baseline.EAGER).split(","):
        if name.strip() not in set(Baseline):
            raise ConfigError(
                f"--baselines {name.strip()}: must be all, none, or of {', '.join(Baseline)}"
            )
        found.add(Baseline(name.strip()))
    if impossible := found.difference(possible):
        raise ConfigError(f"--baselines {min(impossible)}: needs a GPU; leave it out")
    return [each for each in possible if each in found]


def judge_file(file: Path | None, of_many: OfMany, settings: Settings, asks: Asks) -> int:
    """Judge candidates, baselines or both; return the exit code."""
    from cudal1.cli.judging.many import judge_many
    from cudal1.cli.verdicts.candidate_rows import is_pipe, summed_up
    from cudal1.cli.verdicts.show_outcome import as_text, show_outcome

    if file is not None and of_many.out is None and is_pipe(file):
        raise ConfigError(f"{file}: is no file beside which verdicts can be kept; name their --out")
    named = file or Path("baselines")
    out = of_many.out or named.parent / f"{named.stem}.verdicts.jsonl"
    baselines = _named_baselines(of_many.baselines, settings.device_class)
    with devices_of_one_kind(of_many.cluster, settings.device_class) as (
        device_processes,
        left_out,
    ):
        problems = load_named(of_many.suite, settings.device_class, sizes=of_many.sizes)
        for line in left_out:
            say(f"note: not judged on {line}")
        outcome = judge_many(
            file,
            problems,
            out,
            settings,
            device_processes,
            timing=asks.timing,
            baselines=baselines,
            wait_s=asks.wait_s,
        )
    for complaint in summed_up(outcome.complaints):
        say(complaint)
    if asks.as_json:
        answer(as_text(outcome, settings, out))
    elif outcome.judged or not outcome.stopped:
        show_outcome(outcome, settings, out)
    if outcome.is_interrupted:
        return INTERRUPTED
    if outcome.stopped:
        fail(outcome.stopped)
    return BAD if outcome.num_without or outcome.num_references_without else GOOD
