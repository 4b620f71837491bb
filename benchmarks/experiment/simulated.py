"""Run a stage of the pipeline with made-up verdicts: `… benchmarks.experiment.simulated tasks.rl`.

It is the stage as it is: its module, settings, ledger and training. Replaced are the device, the
trial of references, and the judge. So rewards and other settings can be compared for little, on
problems that are not held out. NOTHING that comes out was measured; verdicts say so: their device
is called `SIMULATED`.

Of each problem the table of right sources is written once, when stage `problems` tries it.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.experiment import roofline
from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.harness.admission import admission
from cudal1.harness.device import device as devices
from cudal1.harness.device import facts
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.prompts.prompt import DeviceFacts
from cudal1.verdict import Correctness, Status, Verdict

if TYPE_CHECKING:  # its import comes after the replacements
    from cudal1.services.judging import VerdictSource

TABLES = Path("data/simulated")
"""Folder with the right sources of each problem."""
DEVICE = devices.Device(
    device_class=DeviceClass.CUDA, kind="SIMULATED", id="simulated", worker_core=None
)
FACTS = DeviceFacts(
    device="SIMULATED",
    architecture="sm_90",
    memory="140 GiB",
    cuda_version="13.0",
    torch_version="2.11",
)


def main() -> None:
    """Replace what measures, and run the module that the first argument names."""
    del sys.argv[0]
    replace()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def replace() -> None:
    """Put the replacements where stages import them from; no stage may be imported before.

    Raises:
        RuntimeError: a module that has the real ones is already imported.
    """
    if early := [name for name in sys.modules if name.startswith(("tasks.", "cudal1.services."))]:
        raise RuntimeError(f"{early[0]} was imported before the replacements")
    for module, name, instead in (
        (devices, "find_devices", lambda _: [DEVICE]),
        (devices, "find_device", lambda _: DEVICE),
        (facts, "facts_of", lambda _: FACTS),
        (admission, "probe_all", try_all),
    ):
        setattr(module, name, instead)
    from cudal1.services import judging  # imports what was replaced above

    judging.VerdictSource = source_of_verdicts()


def try_all(problems: Sequence[Problem], **_: object) -> Iterator[tuple[Problem, admission.Probe]]:
    """Yield every problem as admitted, once its table of right sources is written."""
    TABLES.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        for problem, forms in zip(
            problems, pool.map(roofline.right_variants, problems), strict=True
        ):
            (TABLES / f"{problem.id}.json").write_text(json.dumps(sorted(forms)), encoding="utf-8")
            yield (
                problem,
                admission.Probe(
                    problem_id=problem.id,
                    device="cuda",
                    reference_us=1.0,
                    input_effect=1.0,
                    input_bytes=0,
                    output_bytes=0,
                    output_shapes=(),
                ),
            )


@cache
def _right_forms(problem_id: str) -> frozenset[str]:
    return frozenset(json.loads((TABLES / f"{problem_id}.json").read_text(encoding="utf-8")))


def source_of_verdicts() -> type[VerdictSource]:
    """Return a source that finds known verdicts as the real one does, and makes up new ones."""
    from cudal1.harness.judgement import Judgement
    from cudal1.services.judging import VerdictSource

    class Simulated(VerdictSource):
        """A source of verdicts that judges at once, where it is asked."""

        def get_ready(self) -> None:
            """Do nothing: there is no harness to start."""

        def expect(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> None:
            """Do nothing: a verdict takes milliseconds when it is asked for."""

        def verdicts(
            self, asked: Sequence[tuple[Problem, Candidate]], *, timing: bool = True
        ) -> list[Verdict]:
            """Return the verdicts, in order."""
            return self.judge_all(asked, timing=timing)

        @property
        def _is_alone(self) -> bool:
            return True

        def _judge(self, problem: Problem, candidate: Candidate, *, timing: bool) -> Verdict:
            is_right = roofline.normal(candidate.source) in _right_forms(problem.id)
            speed = roofline.speedup(problem, candidate.source) if is_right else None
            made = _verdict(
                problem,
                candidate,
                self.protocol.id if timing else self.protocol.checks_only().id,
                speed if timing else None,
                is_right=speed is not None,
            )
            return self._settled(problem, candidate, Judgement(made, ()))

    return Simulated


def _verdict(
    problem: Problem, candidate: Candidate, protocol_id: str, speed: float | None, *, is_right: bool
) -> Verdict:
    said: dict[str, Any] = {
        "problem_id": problem.id,
        "candidate_id": candidate.id,
        "protocol_id": protocol_id,
        "device_kind": DEVICE.kind,
        "device_id": DEVICE.id,
        "judged_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "judge_s": 0.0,
    }
    if not is_right:
        return Verdict(status=Status.INCORRECT, reason="not in the table of right sources", **said)
    measured = None
    if speed is not None:
        measured = Measurement(
            baseline=Baseline.EAGER,
            speedup=speed,
            certified=speed,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(speed,) * 7,
            bucket_variance=0.0,
            is_stable=True,
            reference_us=speed,
            candidate_us=1.0,
        )
    return Verdict(
        status=Status.CORRECT,
        correctness=Correctness(num_inputs=1, stage=1),
        measurement=measured,
        **said,
    )


if __name__ == "__main__":
    main()
