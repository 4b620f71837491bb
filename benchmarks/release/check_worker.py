"""Run one candidate beside its reference by KernelBench's contract; `checking` starts this script.

python check_worker.py JOB

This is a plain script of the standard library and PyTorch: nothing of cudal1's harness takes part.
Both modules are constructed under one seed, for each of two seeds. Each gets three inputs of the
problem's own generator, copies of its own. The reference has run, and its outputs are on the host,
before the candidate's source is read: flags that the candidate sets change nothing for it. An
output is compared before the next call, which may overwrite it.

The job names files and a device. The result is a JSON file that is rewritten at each step, so that
it shows how far a process that dies has come.
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

SEEDS = (42, 1337)
"""Seeds of the weights; the first is KernelBench's."""
NUM_INPUTS = 3
"""Inputs under each seed."""
TOLERANCES = {"1e-4": 1e-4, "1e-2": 1e-2}
"""Tolerances of KernelBench, absolute and relative: today's for float32, and that of the release.
"""
CHUNK = 1 << 25
"""Elements that are compared at a time: they are held in float64."""
Trial = dict[str, Any]


def main() -> None:
    """Run the job and write its result."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result: dict[str, Any] = {"stage": "reference", "error": None, "trials": []}

    def note(**news: Any) -> None:
        result.update(news)
        Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")

    note()
    torch.set_num_threads(job["threads"])
    try:
        with torch.no_grad():
            check(job, note)
    # whatever a module raises is the result: SystemExit, too
    except BaseException as error:  # noqa: BLE001
        note(error=one_line(f"{type(error).__name__}: {error}"))


def check(job: dict[str, Any], note: Callable[..., None]) -> None:
    """Compare all outputs under all seeds; note stages, trials and further observations."""
    device = torch.device(job["device"])
    reference = load(Path(job["reference"]), "reference")
    expected = [answers(reference, seed, device, job["mode"]) for seed in SEEDS]
    if device.type == "cuda":
        torch.cuda.empty_cache()  # the candidate may allocate without PyTorch
    note(stage="import")
    candidate = load(Path(job["candidate"]), "candidate")
    trials: list[Trial] = []
    leaves_inputs = fresh_outputs = True
    for seed, (arguments, known) in zip(SEEDS, expected, strict=True):
        note(stage="construct")
        module = construct(candidate.ModelNew, arguments, seed, device, job["mode"])
        note(stage="call")
        first: list[tuple[torch.Tensor, torch.Tensor]] = []
        for index, (inputs, answer) in enumerate(known):
            mine = moved(inputs, device)
            seed_all(seed + 1 + index)
            output = module(*mine)
            settle(device)
            found = flat(output)
            trials.append({"seed": seed, "input": index, **compared(found, answer)})
            leaves_inputs &= all(
                same(a.cpu(), b) for a, b in zip(flat(mine), flat(inputs), strict=True)
            )
            first = first or [(tensor, tensor.cpu().clone()) for tensor in found]
            note(trials=trials, leaves_inputs=leaves_inputs)
            if trials[-1]["problem"]:
                return
        fresh_outputs &= all(same(tensor.cpu(), copy) for tensor, copy in first)
        note(fresh_outputs=fresh_outputs)
        del module
    note(stage="done")


def answers(
    reference: Any, seed: int, device: torch.device, mode: str
) -> tuple[list[Any], list[tuple[list[Any], list[torch.Tensor]]]]:
    """Return the constructor's arguments, and inputs with the reference's outputs for them.

    All of them are on the host.
    """
    seed_all(seed)
    arguments = list(reference.get_init_inputs())
    module = construct(reference.Model, arguments, seed, device, mode)
    known: list[tuple[list[Any], list[torch.Tensor]]] = []
    for index in range(NUM_INPUTS):
        seed_all(seed + 1 + index)
        inputs = list(reference.get_inputs())
        mine = moved(inputs, device)
        seed_all(seed + 1 + index)
        output = module(*mine)
        settle(device)
        known.append((inputs, [tensor.cpu().clone() for tensor in flat(output)]))
    return arguments, known


def load(file: Path, name: str) -> Any:
    """Import a file as a module of that name: Triton and dataclasses look their source up."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def construct(
    kind: Any, arguments: Sequence[Any], seed: int, device: torch.device, mode: str
) -> Any:
    """Construct a module as KernelBench does: the generator is seeded right before."""
    mine = moved(list(arguments), device)
    seed_all(seed)
    module = kind(*mine).to(device)
    settle(device)
    return module.eval() if mode == "eval" else module


def seed_all(seed: int) -> None:
    """Seed all generators that a module may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def settle(device: torch.device) -> None:
    """Wait until the device has done its work; raise the device's errors."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def moved(value: Any, device: torch.device) -> Any:
    """Return a copy with every tensor on the device, in memory of its own."""
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)
    if isinstance(value, list | tuple):
        return type(value)(moved(each, device) for each in value)
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    return value


def flat(value: Any) -> list[torch.Tensor]:
    """Return all tensors of a value, numbers as tensors."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in flat(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in flat(each)]
    return [torch.tensor(value)] if isinstance(value, int | float | complex) else []


def compared(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Trial:
    """Compare one call's outputs with the reference's.

    Returns:
        `problem`: in words, where they are of another kind; `relative_l2`: the largest one, None
        where it is not finite; `allclose`: by tolerance, what `torch.allclose` says of all.
    """
    if len(found) != len(expected):
        return unlike(f"{len(found)} outputs, not {len(expected)}")
    errors: list[float] = []
    close = dict.fromkeys(TOLERANCES, True)
    for output, known in zip(found, expected, strict=True):
        if output.shape != known.shape:
            return unlike(f"shape {tuple(output.shape)}, not {tuple(known.shape)}")
        if output.dtype != known.dtype:
            return unlike(f"{output.dtype}, not {known.dtype}")
        answer = known.to(output.device)
        errors.append(relative_l2(output, answer))
        for name, tolerance in TOLERANCES.items():
            close[name] &= allclose(output, answer, tolerance)
    worst = max(errors, default=0.0)
    return {
        "problem": None,
        "relative_l2": worst if math.isfinite(worst) else None,
        "allclose": close,
    }


def allclose(output: torch.Tensor, answer: torch.Tensor, tolerance: float) -> bool:
    """Return the result of `torch.allclose`; of truth values, whether they are equal."""
    if output.dtype == torch.bool:
        return torch.equal(output, answer)
    return torch.allclose(output, answer, atol=tolerance, rtol=tolerance)


def unlike(problem: str) -> Trial:
    """Return the trial of outputs of another kind: nothing can be compared."""
    return {"problem": problem, "relative_l2": None, "allclose": dict.fromkeys(TOLERANCES, False)}


def relative_l2(output: torch.Tensor, answer: torch.Tensor) -> float:
    """Return |x - y| over |y| in float64; infinite where only one of both is finite.

    Equal elements are no distance apart, infinities and NaN included.
    """
    off = size = 0.0
    for x, y in zip(chunks(output), chunks(answer), strict=True):
        alike = (x == y) | (x.isnan() & y.isnan())
        distance = torch.where(alike, 0.0, x - y)
        off += float(distance.square().sum())
        size += float(torch.where(y.isfinite(), y, 0.0).square().sum())
    if not math.isfinite(off):
        return math.inf
    return 0.0 if off == 0 else math.inf if size == 0 else math.sqrt(off / size)


def chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the elements in float64, complex ones as pairs, some at a time."""
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    for part in plain.reshape(-1).split(CHUNK):
        yield part.double()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values, NaN equal to itself."""
    return one.shape == other.shape and bool(
        ((one == other) | ((one != one) & (other != other))).all()
    )


def one_line(text: str) -> str:
    """Return a text in one line of at most 300 characters."""
    return " ".join(text.split())[:300]


if __name__ == "__main__":
    main()
