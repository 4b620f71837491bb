"""Tests of problems and candidates that a program gives as classes, texts and paths."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudal1.api.given import candidate_or_path, problem_or_path, problem_text
from cudal1.errors import ConfigError

MODULE = """class Slow:
    pass

class Fast(Slow):
    pass

class Holder:
    class Inner:
        pass

def made():
    class Local:
        pass
    return Local

def inputs():
    return []

def arguments():
    return [1]

shortest = lambda: []
"""

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Generator[Load]:
    names: list[str] = []

    def load(name: str, source: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


@pytest.fixture
def module(load: Load) -> ModuleType:
    return load("given_module", MODULE)


def test_a_problem_s_names_are_kernelbench_s_whatever_the_module_calls_them(module: Any) -> None:
    made: dict[str, Any] = {}
    exec(problem_text(module.Slow, module.inputs, module.arguments), made)
    assert made["Model"].__name__ == "Slow"
    assert (made["get_inputs"](), made["get_init_inputs"]()) == ([], [1])


def test_a_class_without_arguments_needs_no_function(module: Any) -> None:
    made: dict[str, Any] = {}
    exec(problem_text(module.Slow, module.inputs), made)
    assert made["get_init_inputs"]() == []


def test_a_candidate_brings_its_base_class(module: Any) -> None:
    made: dict[str, Any] = {}
    exec(str(candidate_or_path(module.Fast)), made)
    assert made["ModelNew"].__base__.__name__ == "Slow"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda m: m.made(), "is defined inside a function or class"),
        (lambda m: m.Holder.Inner, "is defined inside a function or class"),
        (lambda m: 3, "int given; give a class, a text or a path"),
        (lambda m: "nowhere.py", "there is no file nowhere.py"),
        (lambda m: type("Made", (), {"__module__": "given_module"}), "defines no Made at its top"),
        (lambda m: type("Made", (), {"__module__": "no_module"}), "at a prompt or in a notebook"),
    ],
)
def test_a_class_without_a_source_of_its_own_is_refused_with_a_remedy(
    module: Any, given: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        candidate_or_path(given(module))
    assert "\n" not in str(raised.value)


def test_a_class_of_a_notebook_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    with pytest.raises(ConfigError, match="%%writefile"):
        candidate_or_path(type("ModelNew", (), {"__module__": "__main__"}))


def test_a_lambda_is_refused(module: Any) -> None:
    with pytest.raises(ConfigError, match="get_inputs is a lambda"):
        problem_text(module.Slow, module.shortest)


def test_modules_that_contradict_each_other_are_refused(load: Load, module: Any) -> None:
    other: Any = load("given_other", "def inputs():\n    return Slow\n\nclass Slow:\n    x = 1\n")
    with pytest.raises(ConfigError, match="Slow is something else than in the other module"):
        problem_text(module.Slow, other.inputs)


def test_a_relative_import_is_refused(load: Load) -> None:
    spec = "try:\n    pass\nexcept ImportError:\n    pass\n"
    module: Any = load("given_relative", f"{spec}class ModelNew:\n    pass\n")
    path = Path(module.__file__)
    path.write_text("from .near import base\n\nclass ModelNew(base):\n    pass\n")
    with pytest.raises(ConfigError, match="relative import"):
        candidate_or_path(module.ModelNew)


def test_functions_go_with_a_class_and_only_with_one(module: Any) -> None:
    with pytest.raises(ConfigError, match="get_inputs is missing"):
        problem_or_path(module.Slow, None, None)
    with pytest.raises(ConfigError, match="goes with a class"):
        problem_or_path("class Model:\n    pass\n", module.inputs, None)


def test_a_text_and_a_path_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.touch()
    assert candidate_or_path("class ModelNew: ...\n") == "class ModelNew: ...\n"
    assert candidate_or_path(str(path)) == candidate_or_path(path) == path
