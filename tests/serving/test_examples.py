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

from cudal1.errors import ConfigError
from cudal1.serving.client import RemoteError, RemoteJudge
from cudal1.serving.messages import Asks
from cudal1.serving.trainer import KernelTasks
from tests.project import ROOT
from tests.serving import frameworks
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
    for name, module in frameworks.modules().items():
        monkeypatch.setitem(sys.modules, name, module)

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


def test_an_unknown_problem_is_named(server: Running) -> None:
    tasks = KernelTasks(server.url, server.tokens["alice"])
    with pytest.raises(RemoteError, match=r"nowhere: the server has no such problem"):
        tasks.prompt("nowhere")


@pytest.mark.parametrize("form", [lambda text: text, lambda text: [{"content": text}]])
def test_trl_s_reward_function_returns_certified_speedups(
    example: Import, form: Callable[[str], object]
) -> None:
    module = example("trl_reward.py")
    found = module.certified_speedup(completions=[form(GOOD), form(WRONG)], key=[KEY, KEY])
    assert found == [4.0, 0.0]


def test_kernelbench_s_results_come_from_the_judge(
    example: Import, server: Running, tmp_path: Path
) -> None:
    module = example("kernelbench_evaluator.py")
    for name, said in (
        ("1_sample_0", "good"),
        ("1_sample_10", "good too"),
        ("2_sample_0", "wrong"),
    ):
        (tmp_path / f"level_1_problem_{name}_kernel.py").write_text(
            f"class ModelNew: ...  # {said}"
        )
    (tmp_path / "level_1_problem_2_prompt.txt").write_text("no kernel")
    with RemoteJudge(server.url, server.tokens["alice"]) as judge:
        found = module.evaluated(tmp_path, judge)
        (tmp_path / "level_2_problem_1_sample_0_kernel.py").write_text("class ModelNew: good = 1")
        with pytest.raises(SystemExit, match="of one level"):
            module.evaluated(tmp_path, judge)
    json.dumps(found)
    (good, more), (wrong,) = found["1"], found["2"]
    assert (good["sample_id"], more["sample_id"]) == (0, 10)
    assert (good["compiled"], good["correctness"], good["runtime"]) == (True, True, 0.001)
    assert good["metadata"]["certified_speedup"] == 4.0
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)


def test_openenv_s_environment_ends_with_a_success(example: Import) -> None:
    module = example("openenv_environment.py")
    environment = module.KernelEnvironment()
    good, wrong = (module.KernelAction(completion=each) for each in (GOOD, WRONG))
    with pytest.raises(ConfigError, match="reset begins one"):
        environment.step(good)
    assert environment.reset(key=KEY).prompt
    found = [environment.step(each) for each in (wrong, good)]
    assert [(each.reward, each.done) for each in found] == [(0.0, False), (4.0, True)]
    assert found[0].said == "it is"
    assert environment.state.step_count == 2
    with pytest.raises(ConfigError, match="reset begins one"):
        environment.step(good)


def test_openenv_s_environment_ends_after_its_steps(example: Import) -> None:
    module = example("openenv_environment.py")
    environment = module.KernelEnvironment()
    chosen = [environment.reset(seed=7).problem for _ in range(2)]
    assert chosen[0] == chosen[1]
    ends = [environment.step(module.KernelAction(completion="")).done for _ in range(4)]
    assert ends == [False, False, False, True]


def test_verifiers_taskset_has_a_task_for_each_problem(example: Import) -> None:
    module = example("cudal1_kernels")
    tasks = module.KernelsTaskset(module.KernelsConfig()).load()
    assert [task.key for task in tasks] == [each.key for each in PROBLEMS]
    for text, reward in ((GOOD, 4.0), (WRONG, 0.0), ("", 0.0)):
        found = tasks[0].certified_speedup(SimpleNamespace(last_reply=text))
        assert asyncio.run(found) == reward


def test_a_client_without_its_extra_is_told_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "cudal1.serving.client", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs the extra serve"):
        importlib.import_module("cudal1.serving.client")
