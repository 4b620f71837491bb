"""The origin of a training's numbers: commit, problems, device and protocol, as tags in MLflow."""

from __future__ import annotations

import subprocess

from cudal1.harness.device.device import find_device
from cudal1.processes import sparse
from cudal1.record import content_id
from tasks.products import admitted_problems
from tasks.server.checkout import CHECKOUT
from tasks.stage import Stage


def origin(stage: Stage) -> dict[str, str]:
    """Return what a stage's numbers depend on, beside its settings.

    `terms` is an id of all that decides the marks of an examination: marks on equal terms are
    comparable.
    """
    params = stage.params
    ids = sorted(problem.id for problem in admitted_problems())
    dataset = content_id(*ids)
    device, protocol = find_device(params.device).kind, params.protocol.id
    sampling = (params.policy.max_prompt_tokens, params.policy.max_new_tokens)
    examination = params.evaluation.model_dump_json()
    return {
        "git_commit": git_revision(),
        "dataset": f"{len(ids)} problems, {dataset[:12]}",
        "device": device,
        "protocol": protocol,
        "terms": content_id(dataset, device, protocol, examination, str(sampling)),
    }


def git_revision() -> str:
    """Return the checkout's commit, not that of another repository that contains it."""
    words = ["git", "-C", str(CHECKOUT), "rev-parse", "--show-toplevel", "--short", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=sparse())
    except OSError:
        return "unknown"
    root, _, revision = done.stdout.strip().partition("\n")
    return revision if root and revision and CHECKOUT.samefile(root) else "unknown"
