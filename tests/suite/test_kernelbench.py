from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import polars
import pytest

from cudal1.errors import SuiteError
from cudal1.harness.admission.admission import admit
from cudal1.problem import DeviceClass, Problem, Unreadable
from cudal1.suite import kernelbench

SOURCE = "import torch\n\nsize = 4096\n\n\nclass Model:\n    pass\n"
FILES = ("level1/19_ReLU.py", "level1/2_Standard_matmul_.py", "level2/10_Conv-Pool.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a work tree like KernelBench's, with three problems of our own and a changelog."""
    for number, name in enumerate(FILES):
        path = tmp_path / "KernelBench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{SOURCE}# {number}\n")
    (tmp_path / "KernelBench" / "changelog").mkdir()
    (tmp_path / "KernelBench" / "changelog" / "v0.1").write_text("words")
    return tmp_path


def load(path: Path | None, **changes: Any) -> list[Problem]:
    arguments = {"revision": None, "sizes": None, "device_class": DeviceClass.CUDA} | changes
    return kernelbench.load(path, **arguments)


def commit(folder: Path) -> str:
    git = ("git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@x")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return head.stdout.strip()


def test_a_checkout_loads_in_order_of_level_and_number(checkout: Path) -> None:
    keys = [problem.key for problem in load(checkout)]

    assert keys == [
        "kernelbench/L1/02_standard_matmul",
        "kernelbench/L1/19_relu",
        "kernelbench/L2/10_conv_pool",
    ]


def test_its_inner_folder_loads_the_same(checkout: Path) -> None:
    assert load(checkout / "KernelBench") == load(checkout)


def test_the_source_is_the_files_text(checkout: Path) -> None:
    assert load(checkout)[1].source == f"{SOURCE}# 0\n"


def test_the_revision_is_the_commit(checkout: Path) -> None:
    head = commit(checkout)

    assert {problem.revision for problem in load(checkout)} == {head}


def test_a_changed_file_does_not_belong_to_the_commit(checkout: Path) -> None:
    head = commit(checkout)
    (checkout / "KernelBench" / FILES[0]).write_text("size = 1\n")

    assert load(checkout)[0].revision != head


def test_a_copy_inside_another_repository_does_not_belong_to_its_commit(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("KernelBench\n")
    head = commit(checkout)

    assert load(checkout)[0].revision != head


def test_without_git_the_revision_follows_the_content(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    before = load(checkout)[0].revision
    (checkout / "KernelBench" / FILES[0]).write_text("size = 1\n")

    assert load(checkout)[0].revision not in ("", before)


def test_sizes_apply_to_their_device_class(checkout: Path) -> None:
    sizes = checkout / "sizes.yaml"
    sizes.write_text("cpu:\n  level1/19_ReLU: {size: 64}\n")

    cpu = load(checkout, sizes=sizes, device_class=DeviceClass.CPU)
    cuda = load(checkout, sizes=sizes)

    assert ["size = 64" in problem.source for problem in cpu] == [False, True, False]
    assert not any("size = 64" in problem.source for problem in cuda)


@pytest.mark.parametrize(
    ("written", "asked", "expected"),
    [
        ("high = wide = 512", "{wide: 8}", "high = 512; wide = 8"),
        ("deep, high = (16, 32)", "{deep: 4}", "deep = 4; high = 32"),
        ("deep = 16; high = wide = 512", "{high: 8}", "deep = 16; high = 8; wide = 512"),
        ("deep, high = (16,\n    32)", "{high: 4, size: 2}", "deep = 16; high = 4"),
    ],
)
def test_a_constant_that_shares_its_statement_is_resized_alone(
    checkout: Path, written: str, asked: str, expected: str
) -> None:
    path, sizes = checkout / "KernelBench" / FILES[0], checkout / "sizes.yaml"
    path.write_text(f"# é\n{written}  # words\n{SOURCE}")
    sizes.write_text(f"cpu:\n  level1/19_ReLU: {asked}\n")

    problem = load(checkout, sizes=sizes, device_class=DeviceClass.CPU)[1]

    assert problem.source.startswith(f"# é\n{expected}  # words\nimport torch\n")


def test_a_statement_that_no_size_names_stays_unchanged(checkout: Path) -> None:
    path, sizes = checkout / "KernelBench" / FILES[0], checkout / "sizes.yaml"
    path.write_text(f"deep, high = (16, 32)\n{SOURCE}")
    sizes.write_text("cpu:\n  level1/19_ReLU: {size: 8}\n")

    problem = load(checkout, sizes=sizes, device_class=DeviceClass.CPU)[1]

    assert problem.source == path.read_text().replace("4096", "8")


def test_sizes_of_an_unknown_problem_are_refused(checkout: Path) -> None:
    sizes = checkout / "sizes.yaml"
    sizes.write_text("cpu:\n  level1/19_relu: {size: 64}\n")

    with pytest.raises(SuiteError, match=r"sizes.yaml: no such problem: level1/19_relu"):
        load(checkout, sizes=sizes)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"nowhere: no such folder; give problems.path"):
        load(tmp_path / "nowhere")


def test_a_missing_folder_from_an_option_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"nowhere: no such folder; give --folder a checkout"):
        load(tmp_path / "nowhere", named="--folder")


def test_a_folder_may_be_named_relative_to_home(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(checkout.parent))

    assert load(Path("~") / checkout.name) == load(checkout)


def test_a_home_of_an_unknown_user_is_a_missing_folder() -> None:
    with pytest.raises(SuiteError, match=r"~nobody-of-this-name/x: no such folder"):
        load(Path("~nobody-of-this-name/x"))


def test_a_folder_without_problems_is_named(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=f"{tmp_path.name}: no level1/1_name.py in it"):
        load(tmp_path)


BROKEN = {
    b"class Model(:\n": "is not valid Python",
    b"\xff\xfe": "not UTF-8 text (byte 0)",
    b"x = 1\0": "not Python: it holds a null byte",
    b"": "defines no Model",
}


@pytest.mark.slow
@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_rejected_with_its_reason_and_costs_no_other(
    checkout: Path, content: bytes
) -> None:
    sound = load(checkout)
    (checkout / "KernelBench" / FILES[1]).write_bytes(content)

    problems = load(checkout)

    assert [problem.key for problem in problems] == [problem.key for problem in sound]
    assert [problem.id for problem in problems][1:] == [problem.id for problem in sound][1:]
    admission = admit(problems[0], max_reference_ms=100.0).admission
    assert not admission.admitted
    assert BROKEN[content] in (admission.reason or "")
    assert "\n" not in (admission.reason or "")


def test_a_folder_is_a_problem_of_several_files(checkout: Path) -> None:
    folder = checkout / "KernelBench" / "level1" / "7_wide"
    folder.mkdir()
    names = "# Model, get_inputs, get_init_inputs\n"
    (folder / "main.py").write_text(f"import helpers\nWIDTH = 4\n{names}")
    (folder / "helpers.py").write_text("WIDTH = 8\n")
    sizes = checkout / "sizes.yaml"
    sizes.write_text("cuda:\n  level1/7_wide: {WIDTH: 16}\n")
    (found,) = [each for each in load(checkout, sizes=sizes) if each.number == 7]
    assert found.key == "kernelbench/L1/07_wide"
    assert "\nWIDTH = 16\n" in found.source
    assert found.source.endswith("# cudal1: file helpers.py\nWIDTH = 8\n")


def test_two_files_with_one_number_are_rejected_and_no_other(checkout: Path) -> None:
    twin = checkout / "KernelBench" / "level1" / "19_ReLU_again.py"
    twin.write_text(f"{SOURCE}# again\n")
    flaws = {p.key: p.flaw for p in load(checkout) if isinstance(p, Unreadable)}
    said = "another problem of level 1 has number 19, too"
    assert flaws == {"kernelbench/L1/19_relu": said, "kernelbench/L1/19_relu_again": said}
    assert len(load(checkout)) == len(FILES) + 1


def test_a_file_that_cannot_be_read_is_rejected(checkout: Path) -> None:
    place = checkout / "KernelBench" / FILES[1]
    place.unlink()
    place.mkdir()

    reason = admit(load(checkout)[0], max_reference_ms=100.0).reason or ""
    assert reason.startswith("a folder in which no file has Model, get_inputs, get_init_inputs")


def test_broken_files_are_different_problems(checkout: Path) -> None:
    for name in FILES:
        (checkout / "KernelBench" / name).write_bytes(b"\xff")

    assert len({problem.id for problem in load(checkout)}) == len(FILES)


@pytest.mark.parametrize("content", BROKEN)
def test_sizes_of_a_broken_file_change_nothing(checkout: Path, content: bytes) -> None:
    (checkout / "KernelBench" / FILES[0]).write_bytes(content)
    sizes = checkout / "sizes.yaml"
    sizes.write_text("cpu:\n  level1/19_ReLU: {size: 64}\n")

    assert load(checkout, sizes=sizes, device_class=DeviceClass.CPU) == load(
        checkout, device_class=DeviceClass.CPU
    )


@pytest.mark.parametrize("content", ["- 1", "cpu: {level1/19_ReLU: {size: [[1]]}}", "a: ["])
def test_a_malformed_sizes_file_is_one_error(checkout: Path, content: str) -> None:
    sizes = checkout / "sizes.yaml"
    sizes.write_text(content)

    with pytest.raises(SuiteError, match=r"sizes\.yaml: ") as raised:
        load(checkout, sizes=sizes)

    assert "\n" not in str(raised.value)


def test_a_size_for_a_missing_constant_of_a_sound_file_is_one_error(checkout: Path) -> None:
    sizes = checkout / "sizes.yaml"
    sizes.write_text("cpu:\n  level1/19_ReLU: {width: 64}\n")

    with pytest.raises(SuiteError, match=r"19_ReLU\.py: no top-level constant named width"):
        load(checkout, sizes=sizes, device_class=DeviceClass.CPU)


@pytest.fixture
def dataset(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Make a local copy of the hub dataset: the schema and file names of the real one."""
    folder = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    (folder / "data").mkdir()
    for level in (1, 2):
        rows = [
            {
                "code": problem.source,
                "level": level,
                "problem_id": problem.number,
                "name": Path(file).stem,
            }
            for problem, file in zip(load(checkout), (FILES[1], FILES[0], FILES[2]), strict=True)
            if problem.level == level
        ]
        polars.DataFrame(rows).write_parquet(
            folder / "data" / f"level_{level}-00000-of-00001.parquet"
        )
    return folder


def test_a_copy_of_the_hub_dataset_loads_the_same_problems(checkout: Path, dataset: Path) -> None:
    plain = {"revision": "r"}
    from_files = [problem.model_copy(update=plain) for problem in load(checkout)]

    assert [problem.model_copy(update=plain) for problem in load(dataset)] == from_files


def test_sizes_apply_to_the_dataset(dataset: Path) -> None:
    sizes = dataset / "sizes.yaml"
    sizes.write_text("cpu:\n  level2/10_Conv-Pool: {size: 8}\n")

    problems = load(dataset, sizes=sizes, device_class=DeviceClass.CPU)

    assert ["size = 8" in problem.source for problem in problems] == [False, False, True]


def test_a_broken_row_of_the_dataset_is_a_rejected_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = ["class Model(:", "x = 1\0", SOURCE]
    rows = [
        {"level": 1, "problem_id": number, "name": f"{number}_Op", "code": code}
        for number, code in enumerate(codes, start=1)
    ]
    monkeypatch.setattr(kernelbench, "_rows", lambda *_: rows)
    sizes = tmp_path / "sizes.yaml"
    sizes.write_text("cuda:\n  level1/1_Op: {size: 64}\n  level1/2_Op: {size: 64}\n")

    assert [problem.source for problem in load(None, sizes=sizes)] == codes


@pytest.mark.parametrize("column", ["level", "problem_id"])
@pytest.mark.parametrize("value", ["easy", "1\n2", "", None, 1.5, float("nan"), True])
def test_a_row_with_a_place_that_is_not_a_number_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, value: object
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    row = {"level": 1, "problem_id": 1, "name": "1_Op", "code": SOURCE, column: value}
    polars.DataFrame([row]).write_parquet(tmp_path / "rows.parquet")

    with pytest.raises(SuiteError, match=f"the {column} of row '1_Op' is .*, no whole") as raised:
        load(tmp_path)

    assert str(raised.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(raised.value)


def test_the_datasets_revision_is_recorded(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def rows(name: str, revision: str | None, _: str) -> list[dict[str, Any]]:
        asked.append((name, revision))
        return [{"level": 1, "problem_id": 1, "name": "1_Op", "code": SOURCE}]

    monkeypatch.setattr(kernelbench, "_rows", rows)

    assert load(None, revision="abc")[0].revision == "abc"
    assert asked == [("ScalingIntelligence/KernelBench", "abc")]


def test_another_dataset_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    polars.DataFrame({"text": ["a"]}).write_parquet(tmp_path / "rows.parquet")

    with pytest.raises(SuiteError, match=f"{tmp_path.name}: lacks code, level, name, problem_id"):
        load(tmp_path)


def test_a_corrupt_dataset_file_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows.parquet").write_bytes(b"no parquet")

    with pytest.raises(
        SuiteError, match=f"{tmp_path.name}: the dataset cannot be loaded .*; give problems.path a"
    ) as raised:
        load(tmp_path)

    assert "\n" not in str(raised.value)
