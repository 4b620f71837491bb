"""Tests of the examples for trainers: TRL, KernelBench, OpenEnv and verifiers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cudal1.serving.client import RemoteJudge
from cudal1.serving.messages import Asks
from cudal1.serving.trainer import KernelTasks
from tests.project import ROOT
from tests.serving.conftest import Running
from tests.serving.played import PROBLEMS

pytestmark = pytest.mark.slow

FOLDER = ROOT / "examples" / "serving"
Import = Callable[[str], ModuleType]
KEY = PROBLEMS[0].key
GOOD = "```python\nclass ModelNew:\n    good = True\n```"
WRONG = "```python\nclass ModelNew:\n    wrong = True\n```"


@pytest.fixture
def example(server: Running, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Provide a function that imports an example by its path, for the server of the tests."""
    monkeypatch.setenv("CUDAL1_URL", server.url)
    monkeypatch.setenv("CUDAL1_TOKEN", server.tokens["alice"])

    def imported(path: str) -> ModuleType:
        name = Path(path).stem if path.endswith(".py") else path
        place = FOLDER / (path if path.endswith(".py") else f"{path}/__init__.py")
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return imported


def test_a_trainer_gets_prompts_rewards_and_reasons(server: Running) -> None:
    tasks = KernelTasks(server.url, server.tokens["alice"])
    assert tasks.keys() == [each.key for each in PROBLEMS]
    assert PROBLEMS[0].source in tasks.prompt(KEY)
    found = tasks.scored([KEY] * 4, [GOOD, "no code", WRONG, GOOD + "\n\nrefuse"])
    assert [each.reward for each in found] == [4.0, 0.0, 0.0, 4.0]
    assert found[1].said == "no code that defines class ModelNew"
    assert found[2].said == "it is"
    checked = KernelTasks(server.url, server.tokens["alice"], Asks(timing=False))
    assert checked.rewards([KEY, KEY], [GOOD, WRONG]) == [1.0, 0.0]


def test_trl_s_reward_function_returns_certified_speedups(example: Import) -> None:
    module = example("trl_reward.py")
    found = module.certified_speedup(completions=[GOOD, WRONG], key=[KEY, KEY], prompts=["", ""])
    assert found == [4.0, 0.0]


def test_kernelbench_s_results_come_from_the_judge(
    example: Import, server: Running, tmp_path: Path
) -> None:
    module = example("kernelbench_evaluator.py")
    (tmp_path / "level_1_problem_1_sample_0_kernel.py").write_text("class ModelNew: good = 1")
    (tmp_path / "level_1_problem_2_sample_0_kernel.py").write_text("class ModelNew: wrong = 1")
    (tmp_path / "level_1_problem_2_prompt.txt").write_text("no kernel")
    with RemoteJudge(server.url, server.tokens["alice"]) as judge:
        found = module.evaluated(tmp_path, judge)
    json.dumps(found)
    (good,), (wrong,) = found["1"], found["2"]
    assert (good["compiled"], good["correctness"], good["runtime"]) == (True, True, 0.001)
    assert good["metadata"]["certified_speedup"] == 4.0
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)


def test_openenv_s_environment_ends_with_a_success(example: Import) -> None:
    pytest.importorskip("openenv")
    module = example("openenv_environment.py")
    environment = module.KernelEnvironment()
    assert environment.reset(key=KEY).prompt
    wrong = environment.step(module.KernelAction(completion=WRONG))
    good = environment.step(module.KernelAction(completion=GOOD))
    assert (wrong.reward, wrong.done, wrong.said) == (0.0, False, "it is")
    assert (good.reward, good.done) == (4.0, True)
    assert environment.state.step_count == 2


def test_verifiers_taskset_has_a_task_for_each_problem(example: Import) -> None:
    pytest.importorskip("verifiers")
    module = example("cudal1_kernels")
    tasks = list(module.KernelsTaskset(module.KernelsConfig()))
    assert [task.key for task in tasks] == [each.key for each in PROBLEMS]
    for text, reward in ((GOOD, 4.0), (WRONG, 0.0), ("", 0.0)):
        found = tasks[0].certified_speedup(SimpleNamespace(last_reply=text))
        assert asyncio.run(found) == reward
