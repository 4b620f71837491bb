"""Profile a reference in a process of its own, and keep the result for later runs.

Threat: the process runs a problem's code. The asking process reads numbers and names of bounded
length from it, shows them, and decides nothing by them.
"""

from __future__ import annotations

from contextlib import closing

from cudal1.errors import SuiteError
from cudal1.harness.admission.admission import TIME_LIMIT_S, UNREADABLE
from cudal1.harness.admission.known_references import Circumstances, KnownReferences
from cudal1.harness.admission.prober import Prober
from cudal1.harness.admission.reference_profile import ReferenceProfile
from cudal1.harness.device.device import Device
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


def profile_of(
    problem: Problem,
    protocol: EvalProtocol,
    device: Device,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    known: KnownReferences | None = None,
) -> ReferenceProfile:
    """Return the profile of a problem's reference that was admitted, on a device.

    Raises:
        SuiteError: the reference does not survive it; the message says why.
    """
    about = Circumstances.of(problem, protocol, device)
    found = known and known.find(about, ReferenceProfile)
    if found:
        return found
    request = {
        "problem": problem.model_dump(mode="json"),
        "device": device.torch_name,
        "time_limit_s": time_limit_s,
        "check_limit_s": 0.0,
        "protocol": None,
        "profile_mode": protocol.mode.value,
    }
    with closing(Prober()) as prober:
        (answer,) = prober.ask(request, 1)
    if answer.get("reason") is not None:
        raise SuiteError(f"{problem.key}: cannot be profiled: {answer['reason']}")
    try:
        profile = ReferenceProfile.model_validate(answer["profile"])
    except (ValueError, KeyError) as error:
        raise SuiteError(f"{problem.key}: cannot be profiled: {UNREADABLE}") from error
    if known:
        known.keep(about, profile)
    return profile
