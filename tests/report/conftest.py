"""Make a realistic run from a fixed seed: shipped problems, three authors, four policies."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import cudal1
from cudal1.program.technique import Technique
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule
from cudal1.record import content_id
from cudal1.report import Provenance, ReportInput, inputs
from cudal1.verdict import Properties

SUITE = Path(cudal1.__file__).parent / "suite" / "problems"
PROTOCOL = EvalProtocol(
    correctness_stages=(1, 5),
    contract=Contract.KERNELBENCH,
    mode=Mode.CONSTRUCTED,
    precision=PrecisionClass.STRICT,
    timing=True,
    rule=Rule.CERTIFIED,
    window_s=None,
    burst_us=2000.0,
    max_burst_calls=64,
    ring_bytes=1 << 26,
    min_quads=14,
    max_quads=100,
    alpha=0.01,
    certify_within=0.1,
    max_claim=100.0,
    dead_zone=1.02,
    num_buckets=7,
    max_bucket_variance=0.005,
    confirm_above=3.0,
    confirm_below=1.0,
    give_up_alpha=0.1,
    confirm_above_record=2.0,
    confirm_within=0.1,
    slow_factor=1000.0,
    start_timeout_s=30.0,
    build_timeout_s=60.0,
    call_timeout_s=10.0,
    memory_bytes=1 << 31,
    seed=7,
)
DEVICE = "cpu"
SCHEMAS = {
    "problems": inputs.PROBLEMS,
    "completions": inputs.COMPLETIONS,
    "candidates": inputs.CANDIDATES,
    "verdicts": inputs.VERDICTS,
    "flags": inputs.FLAGS,
    "bills": inputs.BILLS,
    "second_opinions": inputs.SECOND_OPINIONS,
    "null_test": inputs.NULL_TEST,
    "baselines": inputs.BASELINES,
    "transferred": inputs.TRANSFERRED,
    "searched": inputs.SEARCHED,
    "samples": inputs.SAMPLES,
    "steps": inputs.STEPS,
    "details": inputs.DETAILS,
    "techniques": inputs.TECHNIQUES,
    "rises": inputs.RISES,
    "ancestors": inputs.ANCESTORS,
}
SKILLS = {  # share of correct answers, number of answers to a problem
    ("generate@fuser", "fuser"): (0.7, 4),
    ("generate@replay", "replay"): (0.55, 2),
    ("generate@novice", "novice"): (0.35, 5),
    ("policy", "policy"): (0.02, 4),
    ("sft", "policy"): (0.28, 4),
    ("selfsup@r1", "policy"): (0.41, 6),
    ("selfsup@r2", "policy"): (0.5, 6),
    ("rl", "policy"): (0.62, 8),
    ("search@vanilla", "vanilla"): (0.4, 6),
    ("search@evolve", "evolve"): (0.5, 6),
}
FAILURES: tuple[str | None, ...] = (
    "no_build",
    "crashed",
    "incorrect",
    "incorrect",
    "hacked",
    "timed_out",
    None,
)
KINDS = ("cached_output", "aliased_output", "inputs_changed", "lazy_tensor")

Rows = dict[str, list[dict[str, Any]]]


def provenance(**changes: Any) -> Provenance:
    return Provenance.model_validate(
        {
            "title": "cudal1: the shipped run",
            "generated_at": "2026-11-21T07:00:00Z",
            "git_revision": "3031bf5",
            "device_kind": DEVICE,
            "device": {"name": "2 cores, x86-64", "memory": "8 GiB"},
            "protocol": PROTOCOL,
            "versions": {"python": "3.11.9", "torch": "2.13.0", "trl": "1.16.0"},
            "params": {"rl.steps": "120", "rl.beta": "0.02", "sft.learning_rate": "0.0005"},
            "fast_p": (1.0, 1.5, 2.0),
            **changes,
        }
    )


def build(rows: Rows, **changes: Any) -> ReportInput:
    """Build the input from rows by frame; frames that are not named are empty."""
    frames = {
        name: pl.DataFrame(rows.get(name, []), schema=schema, orient="row")
        for name, schema in SCHEMAS.items()
    }
    return ReportInput(provenance=provenance(**changes), **frames)


def problem(
    number: int = 1,
    *,
    name: str = "softmax",
    split: str = "train",
    level: int = 1,
    source: str = "class Model: ...",
    admitted: bool = True,
) -> dict[str, Any]:
    return {
        "problem_id": f"p{level}{number}",
        "suite": "cudal1",
        "level": level,
        "number": number,
        "name": name,
        "split": split,
        "source": source,
        "admitted": admitted,
        "rejection": None if admitted else "its output is constant",
        "invariants": None,
    }


def answer(
    problem_id: str,
    candidate_id: str | None,
    *,
    stage: str = "generate@fuser",
    provider: str = "fuser",
    number: int = 0,
    best_shown: float | None = None,
    is_copy: bool | None = None,
) -> dict[str, Any]:
    return {
        "completion_id": content_id(stage, provider, problem_id, str(candidate_id), str(number)),
        "stage": stage,
        "provider": provider,
        "problem_id": problem_id,
        "attempt": number,
        "candidate_id": candidate_id,
        "no_candidate_reason": None if candidate_id else "no code block",
        "num_prompt_tokens": 400,
        "num_completion_tokens": 300,
        "cost_usd": 0.01,
        "best_shown": best_shown,
        "is_copy": is_copy,
    }


def searched(
    stage: str,
    *problem_ids: str,
    sampling: str = "none",
    method: str | None = None,
    num_asked: int = 4,
) -> list[dict[str, Any]]:
    return [
        {
            "stage": stage,
            "method": method or ("vanilla" if sampling == "none" else "evolve"),
            "sampling": sampling,
            "problem_id": problem_id,
            "num_asked": num_asked,
        }
        for problem_id in problem_ids
    ]


def verdict(
    problem_id: str,
    candidate_id: str,
    certified: float | None = 1.5,
    *,
    status: str = "correct",
    **changes: Any,
) -> dict[str, Any]:
    timed = status == "correct" and certified is not None
    return {
        "candidate_id": candidate_id,
        "problem_id": problem_id,
        "device_kind": DEVICE,
        "protocol_id": PROTOCOL.id,
        "status": status,
        "judge_s": 2.5,
        "compiling_s": None,
        "precision": "strict" if status == "correct" else None,
        "speedup": certified * 1.04 if timed and certified else None,
        "certified": certified if timed else None,
        "num_quads": 40 if timed else None,
        "bucket_variance": 0.0004 if timed else None,
        "is_stable": True if timed else None,
        "is_confirmed": None,
        "reference_us": 900.0 if timed else None,
        "candidate_us": 900.0 / (certified * 1.04) if timed and certified else None,
        **changes,
    }


def flag(
    candidate_id: str,
    kind: str = "cached_output",
    *,
    source: str = "guard",
    evidence: str = "output 0 of call 3 aliases call 2",
) -> dict[str, Any]:
    return {
        "candidate_id": candidate_id,
        "device_kind": DEVICE,
        "protocol_id": PROTOCOL.id,
        "kind": kind,
        "source": source,
        "evidence": evidence,
    }


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """Return the makers of rows, for tests that need a few of their own."""
    return SimpleNamespace(
        build=build,
        problem=problem,
        answer=answer,
        verdict=verdict,
        flag=flag,
        searched=searched,
        rows=realistic_rows,
        protocol_id=PROTOCOL.id,
        device=DEVICE,
        schemas=SCHEMAS,
    )


@pytest.fixture(scope="session")
def empty() -> ReportInput:
    return build({})


@pytest.fixture(scope="session")
def realistic() -> ReportInput:
    return build(realistic_rows())


def realistic_rows() -> Rows:
    rng = random.Random(20)
    rows: Rows = {name: [] for name in SCHEMAS}
    for level in (1, 2, 3):
        for index, path in enumerate(sorted((SUITE / f"level{level}").glob("*.py"))):
            rows["problems"].append(
                problem(
                    index + 1,
                    level=level,
                    name=path.stem[3:],
                    source=path.read_text("utf-8"),
                    split="heldout" if index % 4 == 3 else "train",
                )
            )
    for item in rows["problems"]:
        _answer_problem(rng, rows, item)
    heldout = [item["problem_id"] for item in rows["problems"] if item["split"] == "heldout"]
    rows["searched"] += searched("search@vanilla", *heldout, num_asked=6)
    rows["searched"] += searched("search@evolve", *heldout, sampling="bucket", num_asked=6)
    rows["problems"].append(problem(99, name="constant", admitted=False))
    rows["null_test"] = [
        {
            "problem_id": item["problem_id"],
            "status": "correct",
            "certified": 1.0,
            "speedup": rng.gauss(1.0, 0.004),
        }
        for item in rows["problems"]
        if item["admitted"]
    ]
    _see(rows)
    _run_otherwise(rng, rows)
    _learn(rng, rows)
    _measure_again(rng, rows)
    _sample(rng, rows)
    _tell(rng, rows)
    return rows


def _answer_problem(rng: random.Random, rows: Rows, item: dict[str, Any]) -> None:
    potential = 45.0 if "diag" in item["name"] else math.exp(max(0.0, rng.gauss(0.05, 0.5)))
    hopeless = rng.random() < 0.08
    for (stage, provider), (skill, count) in SKILLS.items():
        if stage.startswith("search@") and item["split"] != "heldout":
            continue
        for number in range(count):
            status = "correct" if rng.random() < skill and not hopeless else rng.choice(FAILURES)
            if status is None:
                rows["completions"].append(
                    answer(item["problem_id"], None, stage=stage, provider=provider, number=number)
                )
                continue
            source = item["source"].replace("class Model(", "class ModelNew(")
            source += f"\n# variant {rng.randrange(40)} ({status})\n"
            candidate = content_id(item["problem_id"], source)
            rows["completions"].append(
                answer(item["problem_id"], candidate, stage=stage, provider=provider, number=number)
            )
            if any(known["candidate_id"] == candidate for known in rows["candidates"]):
                continue
            rows["candidates"].append(
                {"candidate_id": candidate, "problem_id": item["problem_id"], "source": source}
            )
            estimate = math.exp(rng.gauss(math.log(potential) - 0.1, 0.12))
            level = round(estimate if estimate < 1 else max(1.0, 0.95 * estimate), 2)
            rows["verdicts"].append(
                verdict(
                    item["problem_id"],
                    candidate,
                    level,
                    status=status,
                    bucket_variance=math.exp(rng.gauss(-8.5, 1.3)) if status == "correct" else None,
                    is_confirmed=True if level > 3 and status == "correct" else None,
                )
            )
            if status == "hacked":
                rows["flags"].append(flag(candidate, rng.choice(KINDS)))
            elif rng.random() < 0.03:
                rows["flags"].append(
                    flag(
                        candidate, "stream_use", source="screen", evidence="line 12: cuda.Stream()"
                    )
                )


def _see(rows: Rows) -> None:
    """Add properties of correct candidates, and invariants of some problems' inputs."""
    rng = random.Random(36)
    for item in (*rows["verdicts"], *rows["null_test"]):
        if item["status"] == "correct":
            seen = {name: rng.choice((True, True, False, None)) for name in Properties.model_fields}
            item.update(seen)
    for item in rows["problems"][::3]:
        item["invariants"] = ["input 0: lower triangular", "input 1: whole numbers"]


def _run_otherwise(rng: random.Random, rows: Rows) -> None:
    """Add three baselines; some references cannot be captured, and many are less exact in TF32."""
    failures = {
        "compile": (0.03, "timed_out", "a call did not return in time"),
        "cuda_graph": (
            0.12,
            "crashed",
            "AcceleratorError: CUDA error: operation failed due to a previous error during capture",
        ),
        "cudnn_tf32": (
            0.6,
            "incorrect",
            "correct only in the looser precision class tf32, not strict",
        ),
    }
    held: dict[str, list[tuple[str, float]]] = {}
    for item in (each for each in rows["problems"] if each["admitted"]):
        for baseline, (chance, status, reason) in failures.items():
            row = {"problem_id": item["problem_id"], "baseline": baseline}
            if rng.random() < chance:
                rows["baselines"].append(row | {"status": status, "reason": reason})
                continue
            speedup = math.exp(rng.gauss(0.1, 0.3))
            rows["baselines"].append(
                row | {"status": "correct", "speedup": speedup, "at_most": speedup * 1.03}
            )
            held.setdefault(item["problem_id"], []).append((baseline, speedup * 1.03))
    for item in rows["verdicts"]:
        if item["certified"] is not None:
            item["over_baselines"] = [
                {"baseline": baseline, "certified_over": item["certified"] / at_most}
                for baseline, at_most in held.get(item["problem_id"], [])
            ]


def _learn(rng: random.Random, rows: Rows) -> None:
    def log(stage: str, step: int, **values: float) -> None:
        rows["steps"] += [
            {"stage": stage, "step": step, "name": name, "value": value}
            for name, value in values.items()
        ]

    for stage, start in (("sft", 2.6), ("selfsup@r1", 0.9), ("selfsup@r2", 0.7)):
        for step in range(5, 205, 5):
            log(stage, step, loss=start * math.exp(-step / 90) + 0.3 + rng.gauss(0, 0.03))
    for step in range(1, 121):
        gain = 1 - math.exp(-step / 50)
        log(
            "rl",
            step,
            loss=rng.gauss(0, 0.02),
            reward_raw=0.55 + 0.4 * gain + rng.gauss(0, 0.1),
            success=min(1.0, 0.5 + 0.2 * gain + rng.gauss(0, 0.08)),
            reward=rng.gauss(gain, 0.3),
            kl=0.05 * gain + abs(rng.gauss(0, 0.005)),
            entropy=0.6 - 0.25 * gain,
            learning_rate=1e-4,
            reward_raw_std=0.3,
            best_speedup=1 + gain,
            hacked=0.02,
            reused=0.4,
            generate_s=2.0,
            build_s=0.3,
            judge_s=4.0 + rng.gauss(0, 0.2),
            train_s=0.7,
            rest_s=0.1,
            step_s=7.1,
            idle=0.06,
        )

    for number, item in enumerate(each for each in rows["problems"] if each["admitted"]):
        rows["rises"] += [
            {"stage": "rl", "problem_id": item["problem_id"], "step": step, "best_speedup": best}
            for step, best in ((1 + number, 1.0), (20 + number, 1.2), (90, 1.3 + number / 8))
        ]


def _measure_again(rng: random.Random, rows: Rows) -> None:
    tops: dict[str, dict[str, Any]] = {}
    for item in rows["verdicts"]:
        if (
            item["certified"]
            and item["certified"] > tops.get(item["problem_id"], {"certified": 0.0})["certified"]
        ):
            tops[item["problem_id"]] = item
    for device, factor in ((DEVICE, 0.97), ("NVIDIA H200", 1.2)):
        rows["transferred"] += [
            {
                "problem_id": item["problem_id"],
                "candidate_id": item["candidate_id"],
                "device_kind": device,
                "status": "correct",
                "speedup": item["speedup"],
                "certified": max(1.0, item["certified"] * factor * rng.uniform(0.95, 1.02)),
                "is_null_test": False,
            }
            for item in tops.values()
        ]
    rows["transferred"] += [
        {
            "problem_id": problem_id,
            "candidate_id": f"null-{problem_id}",
            "device_kind": DEVICE,
            "status": "correct",
            "speedup": 1.0,
            "certified": 1.0,
            "is_null_test": True,
        }
        for problem_id in tops
    ]


def _sample(rng: random.Random, rows: Rows) -> None:
    timed = [item for item in rows["verdicts"] if item["certified"] and item["certified"] > 1.01]
    shown = min(timed, key=lambda item: (item["certified"], item["candidate_id"]))
    for quad in range(40):
        order = rng.choice((("reference", "candidate"), ("candidate", "reference")))
        for position, role in enumerate((order[0], order[1], order[1], order[0])):
            base = 900.0 if role == "reference" else 900.0 / shown["speedup"]
            net_us = base * math.exp(rng.gauss(0, 0.03)) * (4 if rng.random() < 0.01 else 1)
            rows["samples"].append(
                {
                    "candidate_id": shown["candidate_id"],
                    "session": 0,
                    "quad": quad,
                    "position": position,
                    "role": role,
                    "num_calls": 16,
                    "burst_us": net_us * 16 + 120,
                    "net_us": net_us,
                }
            )


def _tell(rng: random.Random, rows: Rows) -> None:
    """Add details and techniques of every timed verdict, and exemplars of some."""
    timed = [item for item in rows["verdicts"] if item["certified"]]
    for item in timed:
        tags = rng.sample([each.value for each in Technique], rng.randrange(4))
        rows["techniques"] += [{"candidate_id": item["candidate_id"], "technique": t} for t in tags]
    for item, other in itertools.pairwise(timed):
        rows["details"].append(
            {
                "candidate_id": item["candidate_id"],
                "lower": item["certified"],
                "upper": item["speedup"] * 1.1,
                "alpha": 0.01,
                "doubt": rng.choice((None, "uneven")),
                "bucket_medians": [item["speedup"]] * 7,
                "floor_us": 3.0,
                "num_inputs": 401,
                "max_relative_l2": 3e-8,
                "second_opinion": "off",
                "judged_at": "2026-01-01T00:00:00Z",
            }
        )
        if item["problem_id"] == other["problem_id"]:
            rows["ancestors"].append(
                {
                    "descendant_id": item["candidate_id"],
                    "candidate_id": other["candidate_id"],
                    "generation": 1,
                    "certified": other["certified"],
                }
            )
