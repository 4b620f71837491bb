"""Tests that a mistake in params.yaml gives one line with its dotted path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.errors import ConfigError
from cudal1.settings import profiles
from cudal1.settings.params import OUTCOME_TOKENS, Params

SHIPPED = Path(__file__).parents[2] / "params.yaml"
KEYS = [
    "device",
    "protocol.min_quads",
    "selfsup.rounds.r1.init",
    "rl.tau",
    "search.num_islands",
    "search.methods.evolve-bucket.sampling",
    "report.fast_p",
]


@pytest.fixture
def content() -> dict[str, Any]:
    return yaml.safe_load(SHIPPED.read_text())


def _refusal(content: object, folder: Path) -> str:
    file = folder / "params.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    with pytest.raises(ConfigError) as caught:
        Params.load(file)
    said = str(caught.value)
    assert said.startswith(f"{file}: ")
    assert "\n" not in said
    return said.removeprefix(f"{file}: ")


def test_baselines_that_the_device_cannot_run_are_refused(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["report"]["baselines"] = ["compile", "cuda_graph"]
    assert "report.baselines: cuda_graph needs a GPU; leave it out" in _refusal(content, tmp_path)


def test_the_eager_baseline_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    content["report"]["baselines"] = ["eager"]
    assert "report.baselines: eager is always there" in _refusal(content, tmp_path)


def _section(content: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, name = path.split(".")
    for parent in parents:
        content = content[parent]
    return content, name


def test_the_shipped_file_is_valid() -> None:
    assert Params.load(SHIPPED).protocol.timing


@pytest.mark.parametrize("path", KEYS)
def test_a_missing_key_is_named(path: str, content: dict[str, Any], tmp_path: Path) -> None:
    section, name = _section(content, path)
    del section[name]
    assert _refusal(content, tmp_path) == f"{path}: missing key; add it"


@pytest.mark.parametrize("path", [f"{path}x" for path in KEYS])
def test_an_unknown_key_is_named(path: str, content: dict[str, Any], tmp_path: Path) -> None:
    section, name = _section(content, path)
    section[name] = 1
    assert _refusal(content, tmp_path).startswith(f"{path}: unknown key;")


@pytest.mark.parametrize("path", KEYS)
def test_a_value_of_the_wrong_type_is_named_and_shown(
    path: str, content: dict[str, Any], tmp_path: Path
) -> None:
    section, name = _section(content, path)
    section[name] = {"what": "is this"}
    said = _refusal(content, tmp_path)
    assert said.startswith(f"{path}")
    assert "is this" in said


def test_a_misspelt_key_is_both_missing_and_unknown(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["rl"]["tua"] = content["rl"].pop("tau")
    said = _refusal(content, tmp_path)
    assert "rl.tau: missing key" in said
    assert "rl.tua: unknown key" in said


def test_a_setting_of_a_provider_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    content["generate"]["providers"]["replay"] = {"kind": "replay"}
    assert _refusal(content, tmp_path).startswith("generate.providers.replay.")


def test_a_provider_of_an_unknown_kind_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    content["generate"]["providers"]["replay"] = {"kind": "oracle"}
    said = _refusal(content, tmp_path)
    assert said == "generate.providers.replay.kind: must be rewriter, replay, openai, local or vllm"


def test_a_name_that_no_file_can_have_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    providers = content["generate"]["providers"]
    providers["a/b"] = providers["fuser"]
    said = _refusal(content, tmp_path)
    assert said == "generate.providers.a/b: 'a/b' may hold a to z, 0 to 9, - and _ only"


def test_a_wrong_item_of_a_list_is_reported_once(content: dict[str, Any], tmp_path: Path) -> None:
    content["problems"]["levels"] = [9]
    said = _refusal(content, tmp_path)
    assert said.startswith("problems.levels.0: ")
    assert ";" not in said


def test_a_plan_without_any_problem_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    content["problems"].update(levels=[], generated_train=0, generated_heldout=0)
    assert _refusal(content, tmp_path) == (
        "problems: levels: names no level, and no problems are generated; name a level"
    )


def test_a_protocol_that_contradicts_itself_is_named(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["protocol"]["max_quads"] = 8
    assert _refusal(content, tmp_path).startswith("protocol: ")


@pytest.mark.parametrize(
    ("method", "sampling"), [("vanilla", "bucket"), ("evolve", "none"), ("refine", "bucket")]
)
def test_a_method_that_contradicts_its_sampling_is_named(
    method: str, sampling: str, content: dict[str, Any], tmp_path: Path
) -> None:
    content["search"]["methods"]["evolve-bucket"].update(method=method, sampling=sampling)
    said = _refusal(content, tmp_path)
    assert said == f"search.methods.evolve-bucket: method {method} with sampling {sampling}"


def test_a_policy_that_a_method_reads_must_be_its_providers(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["search"]["methods"]["vanilla-sft"]["reads"] = "data/policy/rl"
    said = _refusal(content, tmp_path)
    assert said.startswith("search.methods.vanilla-sft: reads must be data/policy/sft")


@pytest.mark.slow
def test_a_method_without_a_policy_may_read_any_path(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["search"]["methods"]["vanilla-sft"].update(
        reads="data/shards/problems", provider={"kind": "rewriter", "teacher": "fuser"}
    )
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(content))
    assert Params.load(file).search.methods["vanilla-sft"].reads == "data/shards/problems"


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("r1", {}, "ablation.rows.r1: r1 is a policy already; rename the row"),
        ("rl", {}, "ablation.rows.rl: rl is a policy already; rename the row"),
        ("grpo", {"init": "sft"}, "ablation.rows.grpo: rows start where rl does; leave init out"),
        ("grpo", {"samplng": "none"}, "ablation.rows.grpo.samplng: "),
        ("grpo", {"tau": 0}, "ablation.rows.grpo.tau: "),
        ("champion", {}, "ablation.rows.champion: champion is a policy already"),
        ("grpo", {"whole_answers": True}, "ablation.rows.grpo.whole_answers: the prompts of style"),
    ],
)
def test_a_row_of_the_ablation_that_cannot_be_is_named(
    name: str, changed: dict[str, Any], said: str, content: dict[str, Any], tmp_path: Path
) -> None:
    content["ablation"]["rows"][name] = changed
    assert _refusal(content, tmp_path).startswith(said)


def test_a_group_that_is_no_whole_number_of_trajectories_is_refused(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["rl"].update(group_size=8, turns=3)
    said = _refusal(content, tmp_path)
    assert said == (
        "rl.group_size: 8 answers are no trajectories of rl.turns: 3; make it a multiple"
    )


def test_an_examination_of_no_whole_number_of_trajectories_is_refused(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["evaluation"].update(num_samples=6, turns=4)
    said = _refusal(content, tmp_path)
    assert said == (
        "evaluation: num_samples: 6 answers are no trajectories of turns: 4; make it a multiple"
    )


def test_the_last_turn_has_room_for_its_attempts(content: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    rooms = []
    for turns in (1, 2, 4):
        content["rl"].update(group_size=8, turns=turns)
        file.write_text(yaml.safe_dump(content))
        rooms.append((params := Params.load(file)).max_contrast_tokens(params.rl))
    assert rooms[0] == rooms[1] == 700 + 2 * 256
    assert rooms[2] == 700 + 3 * (256 + OUTCOME_TOKENS)


def test_exemplars_that_are_never_shown_take_no_room(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["rl"].update(group_size=8, turns=2, sampling="none", num_failures=4)
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(content))
    params = Params.load(file)
    assert params.max_contrast_tokens(params.rl) == 700 + 256 + OUTCOME_TOKENS


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"init": "sft"}, "challenger: it starts from the policy tuned; leave init out"),
        ({"batch_size": 8}, "challenger.batch_size: "),
        ({"tau": 0}, "challenger.tau: "),
        (
            {"num_problems": 2},
            "challenger.num_problems: 2 for 4 prompts a step; raise it, or lower",
        ),
    ],
)
def test_settings_of_a_challenger_that_cannot_be_are_named(
    changed: dict[str, Any], said: str, content: dict[str, Any], tmp_path: Path
) -> None:
    content["challenger"] = changed
    assert _refusal(content, tmp_path).startswith(said)


def test_a_challenger_has_the_settings_of_rl_but_those_that_it_changes(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["challenger"] = {"steps": 5}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(content))
    params = Params.load(tmp_path / "params.yaml")
    assert params.nightly_rl() == params.rl.model_copy(update={"steps": 5, "init": "tuned"})


def test_whole_answers_need_the_prompt_that_asks_for_them(
    content: dict[str, Any], tmp_path: Path
) -> None:
    content["rl"]["whole_answers"] = True
    assert _refusal(content, tmp_path).startswith("rl.whole_answers: the prompts of style compact")


@pytest.mark.parametrize("name", ["fuser", "reviewer"])
def test_each_name_belongs_to_one_bill(name: str, content: dict[str, Any], tmp_path: Path) -> None:
    methods = content["search"]["methods"]
    methods[name] = methods["vanilla-sft"]
    said = _refusal(content, tmp_path)
    assert said.startswith(f"{name} names two of generate.providers, search.methods and reviewer")


def test_a_value_in_place_of_a_key_s_variable_is_not_repeated(
    content: dict[str, Any], tmp_path: Path
) -> None:
    hosted = profiles.load("paper", profiles.ProviderProfile).providers["o1"].model_dump()
    content["generate"]["providers"]["hosted"] = {**hosted, "api_key_env": "sk-proj-0123456789"}
    said = _refusal(content, tmp_path)
    assert "api_key_env: must be the name of an environment variable" in said
    assert "sk-proj" not in said


@pytest.mark.parametrize("text", ["", "3", "- a", "a: [1"])
def test_a_file_that_is_not_a_mapping_is_refused(text: str, tmp_path: Path) -> None:
    assert _refusal(text, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"params\.yaml: cannot be read \(No such file"):
        Params.load(tmp_path / "params.yaml")
