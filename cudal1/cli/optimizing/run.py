"""Look at a module, search, prove what was found, and keep it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cudal1.cli.optimizing.shown import answer_rows, write_page
from cudal1.cli.optimizing.wanted import Looked, Wanted
from cudal1.cli.options.files import read_problem
from cudal1.cli.terminal.answer import answer_json
from cudal1.cli.terminal.ending import BAD, GOOD, INTERRUPTED, say
from cudal1.cli.verdicts.show import show
from cudal1.cli.verdicts.show_search import best_in_words
from cudal1.errors import SuiteError
from cudal1.origin import is_edited

if TYPE_CHECKING:
    from cudal1.kept import Kept
    from cudal1.ledger import Ledger
    from cudal1.services.optimizing.state import State


def search_and_keep(wanted: Wanted, *, as_json: bool) -> int:
    """Search, prove and keep; return the exit code."""
    from cudal1.ledger import Ledger
    from cudal1.record import content_id
    from cudal1.services.optimizing.session import STAGE
    from cudal1.services.optimizing.state import State

    before = wanted.places.kept()
    looked = _look(wanted)
    problem, protocol, state = looked.problem, wanted.settings.protocol, State()
    with Ledger.open(wanted.places.ledger) as ledger:
        ledger.begin(STAGE, run=content_id(problem.id, protocol.id, looked.device.kind))
        ledger.add_problem(problem, looked.admission)
        for each in (protocol, protocol.checks_only()):
            ledger.add_protocol(each)
        try:
            stopped = _search(wanted, looked, ledger, state)
            kept = _proven(wanted, looked, ledger, state, before)
        except KeyboardInterrupt:
            say(
                f"{best_in_words(state)} so far, measured once; all facts are in "
                f"{wanted.places.ledger.name}, and the same command goes on from there"
            )
            return INTERRUPTED
        rows = answer_rows(wanted, looked, state, kept)
        write_page(wanted, looked, ledger, state, kept, rows, stopped)
        ledger.export()
    say(f"stopped: {stopped}")
    if as_json:
        answer_json({"kept": kept, "stopped": stopped, "best": best_in_words(state)}, indent=2)
    else:
        show(rows)
    return BAD if kept is None else GOOD


def _look(wanted: Wanted) -> Looked:
    """Read the module, try its reference, and profile it; show what was seen.

    Raises:
        SuiteError: the module cannot be judged; the message has the remedy.
        DeviceError: there is no such device.
    """
    from rich.console import Console

    from cudal1.harness.admission import known_references
    from cudal1.harness.admission.admission import Check, admit
    from cudal1.harness.admission.profile import profile_of
    from cudal1.harness.device.device import find_devices
    from cudal1.services.optimizing.remedies import with_remedy

    settings, module = wanted.settings, wanted.places.module
    problem = read_problem(module, settings.device_class)
    if is_edited(problem.source):
        say(f"note: {module}: was edited after it was written, so its record will name no class")
    device = find_devices(settings.device_class)[0]
    known = known_references.of_this_user()
    with Console(stderr=True).status("trying the reference") as spinner:
        probe = admit(
            problem,
            max_reference_ms=settings.max_reference_ms,
            time_limit_s=settings.trial_limit_s,
            check=Check(settings.protocol, device),
            known=known,
        )
        if (reason := probe.admission.reason) is not None:  # no gain could count
            raise SuiteError(f"{module}: cannot be optimized: {with_remedy(reason)}")
        spinner.update("profiling the reference")
        profile = None
        try:
            profile = profile_of(problem, settings.protocol, device, known=known)
        except SuiteError as error:
            say(f"note: {error}; the search goes on without a profile")
    if probe.rejection:
        say(f"note: a correct verdict says little here: {probe.rejection}")
    for line in () if profile is None else profile.lines:
        say(f"profile: {line}")
    for line in probe.invariants:
        say(f"inputs: {line}")
    return Looked(problem, device, probe.invariants, profile, probe.admission)


def _search(wanted: Wanted, looked: Looked, ledger: Ledger, state: State) -> str:
    """Search until a limit is reached; return the reason to stop."""
    from cudal1.cli.verdicts.show_search import view
    from cudal1.harness.device.facts import facts_of
    from cudal1.services.optimizing.budget import Meter
    from cudal1.services.optimizing.session import Session
    from cudal1.services.optimizing.unanswered import Unanswered
    from cudal1.settings.provider_settings import LocalSettings

    def spent_usd() -> float:
        bills = (ledger.query("spent", provider=each.name) for each in wanted.authors)
        return sum(float(bill.item(0, "at_most_usd")) for bill in bills)

    names = ", ".join(author.name for author in wanted.authors)
    say(f"searching for {wanted.budget}, asking {names}")
    meter = Meter(wanted.budget, spent_usd)
    is_local = any(isinstance(each.settings, LocalSettings) for each in wanted.authors)
    with wanted.source(ledger, num_policies=int(is_local)) as judge, view(meter) as shown:
        session = Session(
            ledger,
            judge,
            looked.problem,
            wanted.authors,
            meter,
            state,
            Unanswered(wanted.places.unanswered),
            facts=facts_of(looked.device),
            profile=looked.profile,
            backend=wanted.backend,
            changed=shown,
        )
        return session.run()


def _proven(
    wanted: Wanted, looked: Looked, ledger: Ledger, state: State, before: Kept | None
) -> Kept | None:
    """Measure the best again; return what is kept, from this run or an earlier one."""
    from cudal1.services.optimizing.keeping import keep, proven

    protocol, kind = wanted.settings.protocol, looked.device.kind
    best = 1.0
    if before is not None:
        of_this = [
            proof.verdict.speedup or 0.0
            for proof in before.proofs
            if proof.problem_id == looked.problem.id
            and (proof.protocol.id, proof.verdict.device_kind) == (protocol.id, kind)
        ]
        best = max(of_this, default=1.0)
        before = before if of_this else None
    found = proven(
        ledger,
        partial(wanted.source, ledger, num_policies=0),
        wanted.sessions,
        looked.problem,
        state.gains,
        say,
        better_than=best,
    )
    if found is None:
        return before
    return keep(
        wanted.places,
        looked.problem,
        found,
        protocol,
        inputs=() if looked.profile is None else looked.profile.inputs,
        device=looked.device,
        invariants=looked.invariants,
        again=wanted.again,
    )
