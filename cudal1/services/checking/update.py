"""Write today's verdicts into the records of kept versions, once a person has looked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.device.device import Device
from cudal1.kept import Kept, Proof
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.services.checking.check import proven_pair
from cudal1.services.checking.finding import Finding, State
from cudal1.services.checking.here import Judge
from cudal1.services.checking.sessions import IncorrectAgain, baseline


def proven_anew(
    path: Path, kept: Kept, proof: Proof, finding: Finding, judge: Judge, device: Device
) -> Proof | None:
    """Return a proof by today's verdict and a full baseline; None where today's is no proof.

    Raises:
        SuiteError: it cannot be judged here.
        DeviceError: another process is judging on the device.
    """
    verdict = finding.verdict
    if verdict is None or not verdict.is_successful or (verdict.speedup or 0.0) <= 1.0:
        return None
    problem, source, _ = proven_pair(path, kept, proof)
    candidate = Candidate(problem_id=problem.id, source=source)
    if verdict.candidate_id != candidate.id:
        return None  # edited while it was judged
    try:
        measured = baseline(problem, candidate, proof.protocol, judge, finding.sessions)
    except IncorrectAgain:
        return None
    return keeping.proof_of(
        problem,
        proof.problem,
        verdict,
        device=device,
        protocol=proof.protocol,
        inputs=proof.inputs,
        sessions=measured,
        invariants=proof.invariants,
    )


def update(path: Path, findings: Sequence[Finding], judge: Judge, device: Device) -> Iterator[str]:
    """Write today's verdicts into a record, and yield a line on each of its proofs.

    A proof of another device stays as it is. One that is wrong, not certified faster or not judged
    stays too, for a person to take out. Where the version was edited, only proofs of today's hold,
    and the others are taken out.

    Args:
        path: the record.
        findings: one for each of its proofs, in their order.
        judge: judges in fresh processes.
        device: the device that it judges on.

    Raises:
        StoreError: the record cannot be written; the old one is still there.
    """
    kept = records.read(path)
    source_id = content_id(records.read_version(path, kept))
    renewed: list[Proof | None] = []
    for proof, finding in zip(kept.proofs, findings, strict=True):
        anew = None
        if finding.state is not State.ELSEWHERE:
            try:
                anew = proven_anew(path, kept, proof, finding, judge, device)
            except SuiteError as error:
                yield f"{path}: {proof.problem}: not judged again: {error}"
        renewed.append(anew)
    if not any(renewed):
        yield f"{path}: left as it was: today's verdicts prove nothing new"
        return
    is_edited = source_id != kept.candidate_source_id
    proofs: list[Proof] = []
    for proof, anew in zip(kept.proofs, renewed, strict=True):
        said = f"{path}: {proof.problem} on {proof.verdict.device_kind}"
        if anew is not None:
            proofs.append(anew)
            yield f"{said}: proven anew, {median(anew.sessions):.3f}x"
        elif is_edited:
            yield f"{said}: taken out: it is of the version before it was edited"
        else:
            proofs.append(proof)
            yield f"{said}: left as it was"
    changes = {"proofs": tuple(proofs), "candidate_source_id": source_id}
    records.write_record(path, kept.model_copy(update=changes))
