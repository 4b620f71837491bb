"""Tests that a captured file does what the program's module does, and says where it cannot."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import cudal1
from cudal1.capturing.capture import capture
from cudal1.capturing.problem_file import HEADER
from cudal1.capturing.refusal import CaptureError
from cudal1.errors import ConfigError
from cudal1.files import source_files
from cudal1.kept import class_source_id
from cudal1.origin import origin_of
from tests.capturing import layers
from tests.capturing.conftest import captured_one, computes_the_same, reference


def test_a_plain_class_becomes_a_model_of_its_own(folder: Path) -> None:
    with captured_one(layers.Plain, folder) as files:
        module = layers.Plain(8)
        module(torch.randn(4, 8))
    (file,) = files
    text = file.read_text()
    assert text.startswith(HEADER)
    assert "class Model(nn.Module):" in text
    assert "def scaled(x" in text
    assert "ConvBlock" not in text
    assert reference(file).init_inputs == [8]
    assert computes_the_same(file, module, module)


def test_a_configuration_is_made_by_the_constructor(folder: Path) -> None:
    with captured_one(layers.Configured, folder) as files:
        module = layers.Configured(layers.Settings(8, act=torch.nn.GELU))
        module(torch.randn(4, 8))
    assert "settings = Settings(width=8, act=torch.nn.GELU" in files[0].read_text()
    assert computes_the_same(files[0], module, module)


def test_a_configuration_that_only_the_call_names_is_cut_out_too(folder: Path) -> None:
    with captured_one(layers.Scaled, folder) as files:
        module = layers.Scaled(layers.Settings(8))
        module(torch.randn(4, 8))
    assert list(source_files.split(files[0].read_text())) == [source_files.MAIN]
    assert computes_the_same(files[0], module, module)


def test_a_file_names_the_class_that_it_was_captured_from(folder: Path) -> None:
    with captured_one(layers.Plain, folder) as files:
        layers.Plain(8)(torch.randn(4, 8))
    origin = origin_of(files[0].read_text())
    assert origin is not None
    assert origin.replaces == f"{layers.__name__}:Plain"
    assert origin.source_id == class_source_id(inspect.getsource(layers.Plain))


def test_evaluation_mode_and_arguments_by_name_are_kept(folder: Path) -> None:
    with captured_one(layers.ConvBlock, folder) as files:
        module = layers.ConvBlock(3, 4, act=torch.nn.GELU).eval()
        module(torch.randn(2, 3, 8, 8), skip=torch.randn(2, 4, 8, 8))
    assert computes_the_same(files[0], module, module)
    assert not reference(files[0]).make().training


def test_training_mode_is_kept_where_it_is_steady(folder: Path) -> None:
    with captured_one(torch.nn.BatchNorm1d, folder) as files:
        module = torch.nn.BatchNorm1d(4)
        module(torch.randn(8, 4))
    assert reference(files[0]).make().training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_are_kept(folder: Path, dtype: torch.dtype) -> None:
    with captured_one(layers.Plain, folder) as files:
        module = layers.Plain(8).to(dtype)
        module(torch.randn(4, 8, dtype=dtype))
    found = reference(files[0])
    assert {each.dtype for each in (*found.make().parameters(), *found.draw())} == {dtype}
    assert computes_the_same(files[0], module, module)


def test_autocasting_is_kept(folder: Path) -> None:
    with captured_one(layers.Configured, folder) as files:
        module = layers.Configured(layers.Settings(8))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            module(torch.randn(4, 8))
    found = reference(files[0])
    assert found.make()(*found.draw()).dtype is torch.bfloat16


def test_tensors_by_name_need_no_forward_of_their_own(folder: Path) -> None:
    with captured_one(layers.Masked, folder) as files:
        layers.Masked()(torch.randn(4, 8), mask=torch.zeros(8))
    assert "super()" not in files[0].read_text()
    assert [tuple(each.shape) for each in reference(files[0]).draw()] == [(4, 8), (8,)]


def test_buffers_are_kept_also_those_that_no_state_has(folder: Path) -> None:
    with captured_one(layers.Buffered, folder) as files:
        module = layers.Buffered(8)
        module(torch.randn(4, 8))
    assert computes_the_same(files[0], module, module)


def test_nested_inputs_and_results_become_flat(folder: Path) -> None:
    with captured_one(layers.Nested, folder) as files:
        module = layers.Nested()
        first, second, gate = (torch.randn(4, 8) for _ in range(3))
        module((first, [second]), {"gate": gate}, factor=0.5)

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[Any]:
        found: dict[str, Any] = module((a, [b]), {"gate": c}, factor=0.5)
        return [found["total"], found["parts"][0]]

    assert computes_the_same(files[0], module, call)


def test_a_tensor_that_is_passed_twice_is_one_input(folder: Path) -> None:
    with captured_one(layers.SelfAttention, folder) as files:
        module = layers.SelfAttention()
        x = torch.randn(2, 4, 8)
        module(x, x, x)
    assert len(reference(files[0]).draw()) == 1
    assert computes_the_same(files[0], module, lambda q: module(q, q, q))


def test_each_set_of_shapes_becomes_a_file_up_to_the_limit(folder: Path) -> None:
    with captured_one(layers.Plain, folder, limit=2) as files:
        module = layers.Plain(8)
        for rows in (1, 2, 1, 3):
            module(torch.randn(rows, 8))
    assert [len(reference(file).draw()[0]) for file in files] == [1, 2]


def test_layers_that_compute_the_same_are_one_file(folder: Path) -> None:
    with captured_one(layers.Plain, folder) as files:
        for eps in (1e-5, 1e-5, 0.5):
            layers.Plain(8, eps)(torch.randn(4, 8))
    assert [reference(file).init_inputs[1] for file in files] == [1e-5, 0.5]


def test_a_function_can_be_decorated_and_the_class_is_left_as_it_was(folder: Path) -> None:
    before = vars(layers.Plain).copy()

    @cudal1.capture(layers.Plain, folder)
    def program() -> None:
        layers.Plain(8)(torch.randn(4, 8))

    program()
    assert vars(layers.Plain) == before
    assert (folder / "plain.py").exists()


def test_one_instance_is_captured_alone(folder: Path) -> None:
    first, second = torch.nn.Linear(8, 4), torch.nn.Linear(4, 4, bias=False)
    with captured_one(first, folder) as files:
        second(first(torch.randn(4, 8)))
    (file,) = files
    assert computes_the_same(file, first, first)


def test_arguments_of_a_constructor_can_be_given(folder: Path) -> None:
    module = layers.Forgetful(8)
    with captured_one(module, folder, init_args=(8,)) as files:
        module(torch.randn(4, 8))
    assert computes_the_same(files[0], module, module)


def test_a_class_called_model_is_captured(folder: Path) -> None:
    with captured_one(layers.Model, folder) as files:
        module = layers.Model(8).to(torch.float16)
        module(torch.randn(4, 8, dtype=torch.float16))
    assert computes_the_same(files[0], module, module)


def test_the_program_s_results_random_numbers_and_weights_stay_as_they_are(folder: Path) -> None:
    def program() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        module = torch.nn.BatchNorm1d(4)
        return module(torch.randn(8, 4)), torch.rand(3), module.state_dict()["running_mean"]

    alone = program()
    with capture(torch.nn.BatchNorm1d, folder):
        watched = program()
        state = torch.random.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_calls_before_an_error_are_captured_and_the_error_goes_on(folder: Path) -> None:
    @cudal1.capture(layers.Plain, folder)
    def program() -> None:
        layers.Plain(8)(torch.randn(4, 8))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert (folder / "plain.py").exists()


def test_a_file_that_was_not_captured_is_not_replaced(folder: Path) -> None:
    folder.mkdir()
    (folder / "plain.py").write_text("mine = True\n")
    said = r"plain\.py: is no captured file; name another folder"
    with pytest.raises(ConfigError, match=said), capture(layers.Plain, folder):
        layers.Plain(8)(torch.randn(4, 8))
    assert (folder / "plain.py").read_text() == "mine = True\n"


def _drops() -> None:
    block = layers.ConvBlock(3, 4)
    block(torch.randn(1, 3, 4, 4))


def _fitting() -> None:
    ids = torch.tensor([[1, 2, 0, 1]])
    layers.Indexed()(torch.randn(4, 8), ids, ids.sum().reshape(1))


class Derived(layers.Plain):
    """A subclass of the class that is captured."""


@pytest.mark.parametrize(
    ("cls", "program", "said"),
    [
        (layers.Plain, lambda: None, "Plain was never called; run the part of the program"),
        (layers.Plain, lambda: Derived(8)(torch.randn(2, 8)), "1 calls were of a subclass"),
        (layers.Noisy, lambda: layers.Noisy()(torch.randn(4)), "draws random numbers"),
        (layers.ConvBlock, _drops, r"in training mode \(dropout\?\); call .eval\(\)"),
        (layers.Indexed, _fitting, "its inputs depend on each other; .* data=True"),
        (
            layers.Textual,
            lambda: layers.Textual()(torch.randn(4), object()),
            "argument 1 of the call is a builtins.object, which cannot be written down",
        ),
    ],
    ids=["uncalled", "subclass", "random", "dropout", "dependent", "object"],
)
def test_a_failed_capture_is_one_line_with_the_remedy(
    folder: Path, cls: Any, program: Any, said: str
) -> None:
    with pytest.raises(CaptureError, match=said) as raised, capture(cls, folder):
        program()
    assert "\n" not in str(raised.value)
    assert not folder.exists()


def test_unknown_arguments_of_a_constructor_are_asked_for(folder: Path) -> None:
    module = layers.Forgetful(8)
    said = r"Forgetful\(\) are not known \(it does not keep its argument width\)"
    with pytest.raises(CaptureError, match=said), capture(layers.Forgetful, folder):
        module(torch.randn(4, 8))


def test_values_of_small_tensors_are_kept_on_request(folder: Path) -> None:
    with captured_one(layers.Indexed, folder, data=True) as files:
        _fitting()
    assert torch.equal(reference(files[0]).draw()[1], torch.tensor([[1, 2, 0, 1]]))


def test_a_class_inside_a_function_is_refused(folder: Path) -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    said = "is defined inside a function or class; move it"
    with pytest.raises(CaptureError, match=said), capture(Inner, folder):
        Inner()(torch.randn(3))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (int, "not a torch.nn.Module"),
        (torch.nn.Module, "has no forward of its own"),
        (torch.nn.ModuleList, "has no forward of its own"),
    ],
)
def test_a_target_that_is_no_module_is_refused(folder: Path, target: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        capture(target, folder)


def test_a_class_that_cannot_be_cut_out_comes_with_a_copy_of_its_package(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "own_copied"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "helpers.py").write_text("def twice(x):\n    return x * 2\n")
    (package / "layers.py").write_text(
        "import torch\nfrom . import helpers\n\n\nclass Twice(torch.nn.Module):\n"
        "    def forward(self, x):\n        return helpers.twice(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "lib")
    cls = importlib.import_module("own_copied.layers").Twice
    with captured_one(cls, folder) as files:
        cls()(torch.randn(4))
    copied = {"own_copied/__init__.py", "own_copied/helpers.py", "own_copied/layers.py"}
    assert source_files.split(files[0].read_text()).keys() == {"", *copied}
    for name in [name for name in sys.modules if name.startswith("own_copied")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    found = reference(files[0])
    (x,) = found.draw()
    assert torch.equal(found.make()(x), x * 2)
