"""Tests that each thing that stage `rl` cannot train is found, by one line with its remedy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cudal1.problem import DeviceClass, Problem, Split
from cudal1.selection.contrast import Sampling
from cudal1.settings.params import Params
from cudal1.settings.rl_params import RlParams
from cudal1.suite.loader import load_suite
from cudal1.train.policy import EMBEDDED
from cudal1.train.trainable import Asked, faults

pytestmark = pytest.mark.slow

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")
NOTHING = Asked()
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each for each in load_suite(DeviceClass.CPU) if each.split is Split.TRAIN]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the shipped policy, without its weights."""
    for name in (*FILES, "chat_template.jinja"):
        shutil.copy(EMBEDDED / name, tmp_path)
    return tmp_path


def change(path: Path, changes: dict[str, Any]) -> None:
    """Change keys of a JSON file; None removes one."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: v for key, v in content.items() if v is not None}))


def only_fault(
    folder: Path, asked: Asked = NOTHING, params: Params = PARAMS, **changed: Any
) -> str:
    rl = RlParams.model_validate({**params.rl.model_dump(), **changed})
    (found,) = faults(folder, params, {"rl": rl}, asked)
    assert "\n" not in found
    return found


def with_policy(**changed: Any) -> Params:
    policy = PARAMS.policy.model_copy(update=changed)
    return PARAMS.model_copy(update={"policy": policy})


def test_the_shipped_policy_has_no_fault(problems: list[Problem]) -> None:
    reinforced = {**PARAMS.reinforced(), "challenger": PARAMS.nightly_rl()}
    assert faults(EMBEDDED, PARAMS, reinforced, Asked(problems)) == []


def test_the_shipped_policy_gives_every_source_of_the_suite_back(problems: list[Problem]) -> None:
    for problem in problems:
        assert faults(EMBEDDED, PARAMS, {}, Asked([problem])) == [], problem.key


def test_a_policy_without_chat_template_is_named(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    said = only_fault(folder)
    assert said.startswith(f"{folder}: its tokenizer has no chat template; take another")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('no tools here') }}", "refuses a question with its answer (no tools"),
        ("{{ messages[0].content }}<|end|>", "does not show an answer as it is"),
        (TEMPLATE.replace("m.content", "m.content | upper"), "does not show an answer as it is"),
    ],
)
def test_a_chat_template_that_cannot_show_an_answer_is_named(
    folder: Path, template: str, said: str
) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert f"its chat template {said}" in only_fault(folder)


def test_a_tokenizer_without_end_token_is_named(folder: Path) -> None:
    change(folder / "tokenizer_config.json", {"eos_token": None})
    assert "no end token, which TRL needs; name eos_token in its" in only_fault(folder)


def test_a_padding_token_beyond_the_models_tokens_is_named(folder: Path) -> None:
    change(folder / "tokenizer_config.json", {"pad_token": "<|added|>"})
    assert "pad_token of its tokenizer is number 2048 of 2048 tokens" in only_fault(folder)


def test_answers_that_end_with_no_end_token_are_named(folder: Path) -> None:
    """Such answers would train nothing where `rl.mask_truncated` is true, without a word."""
    end = "{{ m.content }}<|system|>"
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("{{ m.content }}<|end|>", end))
    said = only_fault(folder)
    assert "ends an answer with '<|system|>', which is none of its end tokens" in said
    number = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    (system,) = (each["id"] for each in number if each["content"] == "<|system|>")
    change(folder / "generation_config.json", {"eos_token_id": [1, system]})
    assert faults(folder, PARAMS, {}, NOTHING) == []


def test_a_tokenizer_that_changes_programs_is_named(folder: Path, problems: list[Problem]) -> None:
    change(folder / "tokenizer.json", {"normalizer": {"type": "Lowercase"}})
    said = only_fault(folder, Asked(problems))
    assert "gives a short module back as another program than it took it" in said


def test_a_tokenizer_that_lacks_a_problems_text_is_named(
    folder: Path, problems: list[Problem]
) -> None:
    change(folder / "tokenizer_config.json", {"unk_token": "diag"})
    said = only_fault(folder, Asked(problems))
    assert f"has no tokens for a part of {problems[0].key}" in said


def test_a_response_template_by_which_trl_reads_answers_otherwise_is_named(folder: Path) -> None:
    from trl.chat_template_utils import qwen3_template

    change(folder / "tokenizer_config.json", {"response_template": qwen3_template})
    said = only_fault(folder)
    assert "TRL would read answers otherwise than they are sampled" in said
    assert "delete that key of tokenizer_config.json in a copy of the folder" in said


def test_a_context_that_is_too_short_for_exemplars_is_named(folder: Path) -> None:
    change(folder / "config.json", {"max_position_embeddings": 1467})
    assert only_fault(folder) == (
        "rl: a prompt and its answer may take 1468 tokens, but the policy has 1467 positions; "
        "lower policy.max_prompt_tokens or rl.num_exemplars or policy.max_new_tokens"
    )
    change(folder / "config.json", {"max_position_embeddings": 1468})
    assert faults(folder, PARAMS, {"rl": PARAMS.rl}, NOTHING) == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"num_failures": 2}, "rl.num_exemplars or rl.num_failures or policy"),
        ({"turns": 4}, "rl.num_exemplars or rl.turns or policy"),
        ({"turns": 4, "sampling": "none"}, "max_prompt_tokens or rl.turns or policy"),
    ],
)
def test_settings_of_all_that_a_prompt_shows_are_named_as_remedies(
    folder: Path, changed: dict[str, Any], named: str
) -> None:
    change(folder / "config.json", {"max_position_embeddings": 1468})
    assert named in only_fault(folder, **changed)


def test_an_examination_over_more_turns_than_fit_is_named(folder: Path) -> None:
    evaluation = PARAMS.evaluation.model_copy(update={"turns": 9, "num_samples": 9})
    (said,) = faults(folder, PARAMS.model_copy(update={"evaluation": evaluation}), {}, NOTHING)
    assert "evaluation: a prompt and its answer may take" in said
    assert "lower evaluation.turns" in said


@pytest.mark.parametrize("changed", [{"sampling": "none"}, {"plain_share": 1.0}])
def test_plain_prompts_need_less_context(folder: Path, changed: dict[str, Any]) -> None:
    change(folder / "config.json", {"max_position_embeddings": 956})
    rl = RlParams.model_validate({**PARAMS.rl.model_dump(), **changed})
    assert faults(folder, PARAMS, {"rl": rl}, NOTHING) == []
    change(folder / "config.json", {"max_position_embeddings": 955})
    assert "may take 956 tokens, but the policy has 955 positions; lower" in only_fault(
        folder, **changed
    )


def test_a_row_that_needs_more_context_is_named_by_its_place(folder: Path) -> None:
    change(folder / "config.json", {"max_position_embeddings": 1500})
    many = PARAMS.rl.model_copy(update={"num_exemplars": 3})
    (said,) = faults(folder, PARAMS, {"rl": PARAMS.rl, "ablation.rows.many": many}, NOTHING)
    assert said.startswith("ablation.rows.many: a prompt and its answer may take 1724 tokens")


def test_too_few_short_prompts_for_a_step_are_named(folder: Path, problems: list[Problem]) -> None:
    (none,) = faults(folder, PARAMS, {"rl": PARAMS.rl}, Asked([]))
    assert none.startswith("rl: 0 of 0 training problems have a prompt of at most 700 tokens")
    said = only_fault(folder, Asked(problems[:2]))
    assert said == (
        "rl: 2 of 2 training problems have a prompt of at most 700 tokens, "
        f"for {PARAMS.rl.prompts_per_step} prompts a step; "
        "raise policy.max_prompt_tokens, or lower rl.prompts_per_step"
    )


def test_prompts_that_could_never_show_an_exemplar_are_named(
    folder: Path, problems: list[Problem]
) -> None:
    """The prompt has 119 tokens, and 131 with the frame of one exemplar."""
    relu = [problem for problem in problems if problem.name == "relu"] * PARAMS.rl.prompts_per_step
    params = with_policy(max_prompt_tokens=129, max_new_tokens=1)
    said = only_fault(folder, Asked(relu), params, num_exemplars=1)
    assert said.startswith("rl: no prompt could show an exemplar: the shortest takes 131 tokens")
    rl = params.rl.model_copy(update={"sampling": Sampling.NONE})
    assert faults(folder, params, {"rl": rl}, Asked(relu)) == []
    assert faults(folder, params, {"rl": params.rl}, Asked(relu)) == [], "two have room for one"
