"""`cudal1 optimize`: from a module to its best proven version."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.options.files import InputsOption, PathOption, read_problem, refuse_inputs
from cudal1.cli.options.settings import (
    ContractOption,
    DeviceOption,
    ModeOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    choose,
)
from cudal1.cli.terminal.answer import answer_json
from cudal1.cli.terminal.ending import BAD, GOOD, INTERRUPTED, fail, say
from cudal1.cli.verdicts.show import Row, show, verdict_rows
from cudal1.cli.verdicts.show_search import best_in_words
from cudal1.errors import CudaL1Error, SuiteError
from cudal1.origin import is_edited
from cudal1.program.backends import Backend, in_words
from cudal1.protocol import Mode

if TYPE_CHECKING:
    from cudal1.candidate import Candidate
    from cudal1.harness.admission.reference_profile import ReferenceProfile
    from cudal1.harness.device.device import Device
    from cudal1.kept import Kept, Proof
    from cudal1.ledger import Ledger
    from cudal1.problem import Admission, Problem
    from cudal1.services.judging import VerdictSource
    from cudal1.services.optimizing.authors import Author
    from cudal1.services.optimizing.budget import Budget
    from cudal1.services.optimizing.places import Places
    from cudal1.services.optimizing.state import State

MODES = {
    Mode.EVAL: "in evaluation mode",
    Mode.TRAIN: "in training mode",
    Mode.CONSTRUCTED: "in the mode of a new module; --mode eval proves it for evaluation",
}
"""The calls for which a version was proven, by its protocol's mode."""

WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PROVIDER",
        help="An author of versions; repeat it for several. teachers, embedded, tuner, an entry of "
        "--params, or a ready one of `cudal1 providers list --profile paper`. Default: teachers, "
        "then embedded, and tuner, which need no key and no network",
    ),
]
BackendOption = Annotated[
    Backend | None,
    typer.Option(
        "--backend",
        help="Ask authors for kernels in this language, and judge only versions that have one",
    ),
]
MinutesOption = Annotated[
    float | None, typer.Option("--minutes", help="Stop after so long. Default: 5 minutes")
]
VerdictsOption = Annotated[
    int | None, typer.Option("--verdicts", help="Stop after so many new verdicts")
]
UsdOption = Annotated[
    float | None,
    typer.Option("--usd", help="Stop when so much is spent; no more is ever spent in this run"),
]


def optimize(
    module: Annotated[
        Path,
        typer.Argument(
            metavar="MODULE",
            help="A file with Model, get_inputs, get_init_inputs; a folder; or "
            "package.module:Class with --inputs",
        ),
    ],
    inputs: InputsOption = None,
    path: PathOption = None,
    with_: WithOption = None,
    backend: BackendOption = None,
    minutes: MinutesOption = None,
    verdicts: VerdictsOption = None,
    usd: UsdOption = None,
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    contract: ContractOption = None,
    mode: ModeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The record of what is kept, for machines")
    ] = False,
) -> None:
    """Find a faster version of a module, prove it, and keep it beside the module.

    Leaves model.faster.py and its record model.faster.json, where a gain was proven twice, and the
    page model.report.html. All facts are in model.optimize: after a Ctrl-C, or asked again, the
    search goes on from there. Nothing is judged or paid for twice. A class is first written as a
    file beside its inputs. Exit code: 0 a proven version is kept, 1 none was found, 2 could not
    search, 130 interrupted.

    Example: cudal1 optimize model.py --minutes 10

    Example: cudal1 optimize package.module:Layer --inputs inputs.py --contract drop_in --mode eval

    Example: cudal1 optimize model.py --with teachers --with gpt-4o --usd 2
    """
    try:
        from cudal1.services.calm import calm_the_machine

        calm_the_machine()  # a policy may write in this process
        from cudal1.services.optimizing.authors import authors, default_names, refuse_backend
        from cudal1.services.optimizing.budget import budget_of
        from cudal1.services.optimizing.places import Places, file_of_class
        from cudal1.suite.modules import is_module

        budget = budget_of(minutes, verdicts, usd)
        settings = choose(params, device, protocol, precision, contract, mode)
        asked = authors(with_ or default_names(backend), params, usd=usd)
        if backend is not None:
            refuse_backend(backend, settings.device_class)
        if is_module(module):
            module = file_of_class(
                module, inputs=inputs, folder=path, device_class=settings.device_class
            )
        else:
            refuse_inputs(module, inputs, path)
        places = Places(module.absolute())
        if backend is not None:
            places.refuse_another_language(backend)
        options = {
            "params": params,
            "device": settings.device_class,
            "protocol": protocol,
            "precision": precision,
            "contract": contract,
            "mode": mode,
        }
        wanted = Wanted(places, asked, budget, settings, backend, _again(places, options))
        code = _optimize(wanted, as_json=as_json)
    except CudaL1Error as error:
        fail(str(error))
    raise typer.Exit(code)


@dataclass(frozen=True)
class Looked:
    """The module as it was seen before the search."""

    problem: Problem
    device: Device
    invariants: tuple[str, ...]
    profile: ReferenceProfile | None
    admission: Admission


@dataclass(frozen=True)
class Wanted:
    """The wishes of the options."""

    places: Places
    authors: list[Author]
    budget: Budget
    settings: Settings
    backend: Backend | None
    again: str
    """The command that judges a kept version again."""

    def source(self, ledger: Ledger, *, num_policies: int) -> VerdictSource:
        """Return a source of verdicts, with processes of its own."""
        from cudal1.services.judging import VerdictSource

        settings = self.settings
        return VerdictSource(
            ledger, settings.device_class, settings.protocol, None, num_policies=num_policies
        )

    def sessions(self, problem: Problem, candidate: Candidate) -> tuple[float, ...]:
        """Return a version's sessions, as `cudal1 check --update` measures them."""
        from cudal1.services.checking.here import Here
        from cudal1.services.checking.sessions import baseline
        from cudal1.services.judging import WAIT_S

        settings = self.settings
        with Here(
            settings.device_class,
            max_reference_ms=settings.max_reference_ms,
            time_limit_s=settings.trial_limit_s,
            wait_s=WAIT_S,
        ) as here:
            return baseline(problem, candidate, settings.protocol, here.judge)


def _optimize(wanted: Wanted, *, as_json: bool) -> int:
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
        rows = _rows(wanted, looked, state, kept)
        _write_page(wanted, looked, ledger, state, kept, rows, stopped)
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
        if probe.reason is not None:
            raise SuiteError(f"{module}: cannot be judged: {with_remedy(probe.reason)}")
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


def _rows(wanted: Wanted, looked: Looked, state: State, kept: Kept | None) -> list[Row]:
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


def _write_page(
    wanted: Wanted,
    looked: Looked,
    ledger: Ledger,
    state: State,
    kept: Kept | None,
    rows: list[Row],
    stopped: str,
) -> None:
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


def _again(places: Places, options: dict[str, object]) -> str:
    """Return the command that judges a kept version under the same options."""
    words = ["cudal1", "judge", places.module.name, places.version.name]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)
