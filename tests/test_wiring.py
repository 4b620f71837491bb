"""Tests that a stage has one name everywhere, and that dvc.yaml lists its dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.settings.params import Params
from tasks.stages import stage_names

ROOT = Path(__file__).parent.parent
PARAMS = Params.load(ROOT / "params.yaml")
DVC: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
NAMES = (
    "problems",
    "policy",
    "generate",
    "filter",
    "sft",
    "selfsup",
    "rl",
    "ablation",
    "search",
    "transfer",
    "report",
)
SHARED_SECTIONS = {"device", "protocol", "evaluation", "reviewer"}
SHARED_MODULES = {
    "tasks/stage.py": "how a stage is started does not change what it makes",
    "tasks/stages.py": "as above",
    "tasks/server/checkout.py": "says where files may lie",
    "cudal1/processes.py": "how a process is started does not change what it makes",
    "cudal1/harness/schedule/pools.py": "asked whether the device works",
    "cudal1/harness/admission/known_references.py": "gives back what was found before",
    "tasks/products.py": "reads what stages before left, which are dependencies",
    "tasks/progress.py": "for the eye only",
    "tasks/learning/training.py": "passes numbers on",
    "cudal1/services/stopwatch.py": "says how long a step took, and changes nothing",
    "cudal1/services/reviewing.py": "asks the reviewer that params name",
    "cudal1/services/repeating.py": "as above",
    "tasks/cost_forecast.py": "says what a stage would do, and makes nothing",
    "cudal1/services/consent.py": "says whether a run may spend; an answer does not depend on it",
    "cudal1/services/answers.py": "keeps answers; cudal1/extract finds candidates",
    "cudal1/services/attempts.py": "asks cudal1/prompts/feedback.py, which is a dependency",
    "cudal1/services/asking.py": "gives known answers again; what a new one is, cudal1/llm decides",
    "cudal1/services/judging.py": "looks verdicts up; what is in one is the harness's",
    "cudal1/tracking/runs.py": "write-only",
    "cudal1/tracking/registry.py": "moves aliases; a night brings the version that its file names",
    "tasks/learning/curves.py": "names in MLflow",
    "tasks/learning/origin.py": "tags in MLflow; the page's commit is that of its making",
    "cudal1/services/telling.py": "for the eye only",
    "cudal1/selection/intervals.py": "report depends on it; elsewhere it says how sure a mark is",
    "cudal1/ledger": "keeps facts as they are; a change of its schema rebuilds it",
    "cudal1/settings/params.py": "values come as params",
    "cudal1/settings/provider_settings.py": "values come as params",
    "cudal1/errors.py": "words",
    "cudal1/record.py": "identity of facts; a change of it changes every id",
    "cudal1/candidate.py": "a record",
    "cudal1/problem.py": "a record; what it makes of a suite is stage problems'",
    "cudal1/protocol.py": "a record whose values come as params",
    "cudal1/measurement.py": "a record",
    "cudal1/verdict.py": "a record",
    "cudal1/prompts/prompt.py": "fills the templates of cudal1/prompts, which are dependencies",
    "cudal1/extract/extract.py": "answers are kept raw; generate depends on it",
    "cudal1/selection/contrast.py": "rl and search depend on it",
    "cudal1/selection/exemplar.py": "a record",
    "cudal1/selection/reward.py": "rl depends on it; elsewhere it only counts",
    "cudal1/selection/metrics.py": "report depends on it",
    "cudal1/train": "the training stages depend on it; elsewhere it only samples",
    "tasks/reproduce.py": "as tasks/stage.py",
}
"""Files that a stage may import without naming them in dvc.yaml, each with the reason."""


def definition(name: str) -> dict[str, Any]:
    stage = DVC[name]
    return stage.get("do", stage)


def sections_read(source: str) -> set[str]:
    """Return the first names after `params.` in a module."""
    return set(re.findall(r"\bparams\.([a-z]+)\b", source)) & set(Params.model_fields)


def imports(path: Path) -> set[str]:
    """Return those of our modules that a file imports, as paths from the root."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                for dotted in (f"{node.module}.{name.name}", node.module):
                    if (module := _path_of(dotted)) is not None:
                        found.add(module)
                        break
    return found


PARTS = {
    "cudal1/services/searching/rounds.py",
    "tasks/examine.py",
    "tasks/learning/world.py",
    "tasks/rl.py",
}
"""Modules that hold a part of several stages' bodies."""


def modules_of(name: str) -> list[Path]:
    """Return a stage's module, and those that hold a part of its body."""
    found, waiting = list[Path](), [ROOT / "tasks" / f"{name}.py"]
    while waiting:
        found.append(waiting.pop())
        shared = imports(found[-1]) & PARTS
        waiting += [ROOT / each for each in shared if ROOT / each not in found]
    return found


def _path_of(dotted: str) -> str | None:
    if not dotted.startswith(("cudal1", "tasks")):
        return None
    relative = dotted.replace(".", "/")
    for found in (f"{relative}.py", relative):
        if (ROOT / found).exists():
            return found
    return None


def test_stages_are_those_of_the_issue_and_its_baselines() -> None:
    assert tuple(DVC) == NAMES


def test_the_flow_runs_every_stage_after_the_stages_that_it_needs() -> None:
    order = stage_names(until="report", root=ROOT)
    groups = list(dict.fromkeys(name.split("@")[0] for name in order))
    assert groups == [name for name in NAMES if name != "ablation"]  # it has no rows as shipped


def test_winners_are_measured_again_of_every_stage_that_the_report_shows() -> None:
    shown = stage_names(until="report", root=ROOT)
    assert [*stage_names(until="transfer", root=ROOT), "report"] == shown


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_is_started_by_the_module_of_its_name(name: str) -> None:
    """The interpreter is isolated: it imports nothing from its working directory."""
    assert definition(name)["cmd"].startswith(f"python -I -X utf8 cudal1/start.py tasks.{name}")
    assert (ROOT / "tasks" / f"{name}.py").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_declares_the_sections_that_it_reads(name: str) -> None:
    read = set[str]().union(*(sections_read(path.read_text()) for path in modules_of(name)))
    declared = {str(key).split(".")[0] for key in definition(name)["params"]}
    assert read - SHARED_SECTIONS <= declared
    assert declared - SHARED_SECTIONS <= read | {name}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_depends_on_the_code_that_makes_its_result(name: str) -> None:
    declared = [str(dep) for dep in definition(name)["deps"]]
    needed = imports(ROOT / "tasks" / f"{name}.py") - {f"tasks/{name}.py"}
    missing = {
        module
        for module in needed
        if not any(module.startswith(known) for known in (*declared, *SHARED_MODULES))
    }
    assert missing == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_that_declares_single_keys_declares_all_of_its_section(name: str) -> None:
    """The list of instances is an exception: another device does not change existing ones."""
    own = [key.split(".")[1] for key in definition(name)["params"] if key.startswith(f"{name}.")]
    if own:
        fields = Params.model_fields[name].annotation
        assert fields is not None
        instances = {"devices"} if name == "transfer" else set[str]()
        assert set(own) == set(fields.model_fields) - instances


@pytest.mark.parametrize("name", NAMES)
def test_declared_code_exists(name: str) -> None:
    deps = [str(dep) for dep in definition(name)["deps"]]
    paths = [dep.partition("${")[0] for dep in deps if not dep.startswith(("data/", "${"))]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_depends_on_the_prompts_that_it_shows(name: str) -> None:
    """It depends on no other prompt: a changed word there would ask, and pay, for all anew."""
    source = "".join(path.read_text() for path in modules_of(name))
    style = {"generate": "generate", "search": "search"}.get(name, "policy")
    folder = f"cudal1/prompts/${{{style}.prompts}}"
    if "contrastive_prompt(" in source or "with_lessons(" in source:
        expected = [folder]
    else:
        shown = {"generation": ("generate",), "refinement": ("attempt", "refine")}
        names = [n for kind, made in shown.items() if f"{kind}_prompt(" in source for n in made]
        expected = [f"{folder}/{name}.md" for name in sorted(names)]
    deps = [str(dep) for dep in definition(name)["deps"]]
    assert [dep for dep in deps if dep.startswith("cudal1/prompts/${")] == expected


def test_every_training_run_is_plotted() -> None:
    plots: list[dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    shown = {path for plot in plots for values in plot.values() for path in values["y"]}
    rounds = {f"data/plots/selfsup-{name}.csv" for name in PARAMS.selfsup.rounds}
    assert shown == {"data/plots/sft.csv", "data/plots/rl.csv", *rounds}


def test_a_method_waits_for_the_policy_that_it_asks() -> None:
    """`cudal1.settings.params` checks that `reads` is what the provider reads."""
    assert "${item.reads}" in definition("search")["deps"]


def outputs(name: str) -> dict[str, dict[str, Any]]:
    """Return each output of a stage, with DVC's settings for it."""
    stage = definition(name)
    named = [*stage["outs"], *stage.get("metrics", [])]
    return {
        path: options
        for out in named
        for path, options in (out.items() if isinstance(out, dict) else [(out, {})])
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_leaves_a_shard_and_metrics(name: str) -> None:
    outs = outputs(name)
    (shard,) = (path for path in outs if path.startswith(f"data/shards/{name}"))
    assert outs[shard] == {"persist": True}  # survives a rerun: it holds paid answers
    assert [path for path in outs if path.startswith(f"data/metrics/{name}")]


@pytest.mark.parametrize("name", NAMES)
def test_git_tracks_no_output_of_a_stage_and_dvc_tracks_every_one(name: str) -> None:
    """Otherwise the tree is dirty after a run, or a pulled run has something to do."""
    outs = outputs(name)
    assert [path for path, options in outs.items() if options.get("cache") is False] == []
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *outs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == list(outs)


def test_the_readme_names_every_stage_and_top_level_entry() -> None:
    readme = (ROOT / "README.md").read_text()
    top = ["flows/", "tasks/", "cudal1/", "data/", "dvc.yaml", "params.yaml", "tests/"]
    assert [name for name in (*NAMES, *top) if name not in readme] == []


def test_the_readme_shows_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(re.findall(r"`?make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert shown <= targets
