"""Answer for a file of candidates, or a suite's baselines, on the devices that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cudal1.baseline import Baseline, on
from cudal1.cli.judging.asks import Asks, OfMany
from cudal1.cli.options.settings import Settings
from cudal1.cli.options.suites import load_named
from cudal1.cli.terminal.answer import answer
from cudal1.cli.terminal.ending import BAD, GOOD, INTERRUPTED, fail, say
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass

if TYPE_CHECKING:
    from cudal1.harness.schedule.device_processes import DeviceProcess


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
    with _device_processes(of_many.cluster, settings.device_class) as (device_processes, left_out):
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


@contextmanager
def _device_processes(
    cluster: str | None, device_class: DeviceClass
) -> Iterator[tuple[list[DeviceProcess], list[str]]]:
    """Yield devices of the most common kind, and a line on each that is left out.

    The devices are of one kind, since verdicts are compared within one.
    """
    from cudal1.harness.cluster.cluster import processes_on_cluster
    from cudal1.harness.device.device import find_devices
    from cudal1.harness.schedule import assignment
    from cudal1.harness.schedule.device_processes import processes_found_here

    with ExitStack() as opening:
        if cluster is None:
            find = partial(find_devices, device_class)
            device_processes, left_out = opening.enter_context(processes_found_here(find)), []
        else:
            device_processes, left_out = opening.enter_context(
                processes_on_cluster(cluster, device_class)
            )
        kinds = Counter(sorted(device_process.device.kind for device_process in device_processes))
        kind = kinds.most_common(1)[0][0]
        others = [
            f"{device_process}: not of kind {kind}"
            for device_process in device_processes
            if device_process.device.kind != kind
        ]
        chosen = [
            device_process
            for device_process in device_processes
            if device_process.device.kind == kind
        ]
        for device_process in chosen if cluster is None else ():  # while problems are read
            device_process.process.submit(assignment.begin_zygote, device_process.device)
        yield chosen, left_out + others
