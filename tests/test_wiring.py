"""A stage has one name everywhere, and dvc.yaml says what its result depends on."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.params import Params
from tasks.stages import stage_names

ROOT = Path(__file__).parent.parent
PARAMS = Params.load(ROOT / "params.yaml")
DVC: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
NAMES = (
    "problems", "policy", "generate", "filter", "sft", "selfsup", "rl", "search", "transfer",
    "report",
)  # fmt: skip
SHARED_SECTIONS = {"device", "protocol", "evaluation", "hack_judge"}
SHARED_MODULES = {
    "tasks/stage.py": "how a stage is started does not change what it makes",
    "tasks/stages.py": "as above",
    "tasks/checkout.py": "says where files may lie",
    "cudal1/processes.py": "how a process is started does not change what it makes",
    "cudal1/harness/pools.py": "asked whether the device works",
    "cudal1/harness/known_references.py": "gives back what the same code has found of a problem",
    "tasks/progress.py": "for the eye only",
    "tasks/training.py": "passes numbers on",
    "tasks/stopwatch.py": "says how long a step took, and changes nothing",
    "tasks/reviewing.py": "asks the judge that params name; what it says is a fact of the ledger",
    "tasks/repeating.py": "as above",
    "tasks/foretelling.py": "says what a stage would do, and makes nothing",
    "tasks/consent.py": "says whether a run may spend; an answer does not depend on it",
    "tasks/answers.py": "keeps answers; what is found in one, cudal1/extract.py decides",
    "tasks/asking.py": "gives known answers again; what a new one is, cudal1/llm decides",
    "tasks/judging.py": "looks verdicts up and keeps them; what is in one is the harness's",
    "cudal1/tracking.py": "write-only",
    "cudal1/ledger": "keeps facts as they are; a change of its schema rebuilds it",
    "cudal1/params.py": "values come as params",
    "cudal1/provider_settings.py": "values come as params",
    "cudal1/errors.py": "words",
    "cudal1/record.py": "identity of facts; a change of it changes every id",
    "cudal1/candidate.py": "a record",
    "cudal1/problem.py": "a record; what it makes of a suite is stage problems'",
    "cudal1/protocol.py": "a record whose values come as params",
    "cudal1/measurement.py": "a record",
    "cudal1/verdict.py": "a record",
    "cudal1/prompt.py": "fills the templates of cudal1/prompts, which are dependencies",
    "cudal1/extract.py": "answers are kept raw; generate depends on it",
    "cudal1/contrast.py": "rl and search depend on it",
    "cudal1/exemplar.py": "a record",
    "cudal1/reward.py": "rl depends on it; elsewhere it only counts",
    "cudal1/metrics.py": "report depends on it",
    "cudal1/train": "the training stages depend on it; elsewhere it only samples",
    "tasks/reproduce.py": "as tasks/stage.py",
}
"""What a stage may import without naming it in dvc.yaml, and why."""


def definition(name: str) -> dict[str, Any]:
    stage = DVC[name]
    return stage.get("do", stage)


def sections_read(source: str) -> set[str]:
    """First names after `params.` in a module."""
    return set(re.findall(r"\bparams\.([a-z]+)\b", source)) & set(Params.model_fields)


def imports(path: Path) -> set[str]:
    """Our modules that a file imports, as paths from the root."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                for dotted in (f"{node.module}.{name.name}", node.module):
                    if (module := _path_of(dotted)) is not None:
                        found.add(module)
                        break
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


def test_the_flow_runs_every_stage_after_what_it_needs() -> None:
    order = stage_names(until="report", root=ROOT)
    groups = list(dict.fromkeys(name.split("@")[0] for name in order))
    assert groups == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_is_started_by_the_module_of_its_name(name: str) -> None:
    """In an isolated interpreter, which imports nothing from where it is started."""
    assert definition(name)["cmd"].startswith(f"python -I -X utf8 cudal1/start.py tasks.{name}")
    assert (ROOT / "tasks" / f"{name}.py").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_declares_the_sections_that_it_reads(name: str) -> None:
    modules = [ROOT / "tasks" / f"{name}.py"]
    modules += [ROOT / m for m in imports(modules[0]) if m in ("tasks/examine.py",)]
    read = set[str]().union(*(sections_read(path.read_text()) for path in modules))
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
    """But for the list of its instances: another device is no news to those that are there."""
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
    """And on no others: a word in one of them would ask, and pay, for all of its answers anew."""
    module = ROOT / "tasks" / f"{name}.py"
    files = [module, *(ROOT / m for m in imports(module) if m == "tasks/examine.py")]
    source = "".join(path.read_text() for path in files)
    style = {"generate": "generate", "search": "search"}.get(name, "policy")
    folder = f"cudal1/prompts/${{{style}.prompts}}"
    if "contrastive_prompt(" in source:
        expected = [folder]
    else:
        expected = [f"{folder}/generate.md"] if "generation_prompt(" in source else []
    deps = [str(dep) for dep in definition(name)["deps"]]
    assert [dep for dep in deps if dep.startswith("cudal1/prompts")] == expected


def test_every_training_run_is_plotted() -> None:
    plots: list[dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    shown = {path for plot in plots for values in plot.values() for path in values["y"]}
    rounds = {f"data/plots/selfsup-{name}.csv" for name in PARAMS.selfsup.rounds}
    assert shown == {"data/plots/sft.csv", "data/plots/rl.csv", *rounds}


def test_a_method_waits_for_the_policy_that_it_asks() -> None:
    """That `reads` is what the provider reads, `cudal1.params` checks."""
    assert "${item.reads}" in definition("search")["deps"]


def outputs(name: str) -> dict[str, dict[str, Any]]:
    """Each output of a stage, with what DVC is told of it."""
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
    assert outs[shard] == {"persist": True}  # survives a rerun: what was paid for is in it
    assert [path for path in outs if path.startswith(f"data/metrics/{name}")]


@pytest.mark.parametrize("name", NAMES)
def test_git_has_none_of_what_a_stage_leaves_and_dvc_has_all_of_it(name: str) -> None:
    """Else the tree is dirty after a run, or a run that was pulled has something to do."""
    outs = outputs(name)
    assert [path for path, options in outs.items() if options.get("cache") is False] == []
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *outs], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split() == list(outs)


def test_the_readme_names_every_stage_and_top_level_entry() -> None:
    readme = (ROOT / "README.md").read_text()
    top = ["flows/", "tasks/", "cudal1/", "data/", "dvc.yaml", "params.yaml", "tests/"]
    assert [name for name in (*NAMES, *top) if name not in readme] == []


def test_the_readme_shows_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(re.findall(r"`?make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert shown <= targets
