from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Split
from cudal1.suite import loader
from cudal1.suite.loader import FOLDER, load_file, load_suite
from cudal1.suite.sizes import load_sizes

SOURCE = "import torch\n\nN = 4\n\n\nclass Model:\n    pass\n"
BOTH = pytest.mark.parametrize("device_class", list(DeviceClass))


@BOTH
def test_the_shipped_suite_has_three_levels(device_class: DeviceClass) -> None:
    levels = [problem.level for problem in load_suite(device_class)]

    assert {level: levels.count(level) >= least for level, least in ((1, 16), (2, 14), (3, 8))} == {
        1: True,
        2: True,
        3: True,
    }


@BOTH
def test_shipped_ids_and_keys_are_unique(device_class: DeviceClass) -> None:
    problems = load_suite(device_class)

    assert len({problem.id for problem in problems}) == len(problems)
    assert len({problem.key for problem in problems}) == len(problems)


def test_numbers_count_from_one_in_each_level() -> None:
    problems = load_suite(DeviceClass.CPU)

    for level in (1, 2, 3):
        numbers = [problem.number for problem in problems if problem.level == level]
        assert numbers == list(range(1, len(numbers) + 1))


def test_each_problem_has_sizes_for_a_cpu() -> None:
    cuda = {problem.key: problem.source for problem in load_suite(DeviceClass.CUDA)}

    same = [p.key for p in load_suite(DeviceClass.CPU) if p.source == cuda[p.key]]

    assert same == []


def test_cuda_sizes_come_from_the_files() -> None:
    on_disk = {path.read_text() for path in FOLDER.glob("level*/*.py")}

    assert {problem.source for problem in load_suite(DeviceClass.CUDA)} == on_disk


def test_a_quarter_is_held_out_in_every_level() -> None:
    problems = load_suite(DeviceClass.CPU)

    for level in (1, 2, 3):
        splits = [problem.split for problem in problems if problem.level == level]
        assert 0.2 <= splits.count(Split.HELDOUT) / len(splits) <= 0.3


def test_splits_do_not_depend_on_the_device_class() -> None:
    cpu, *others = ({p.key: p.split for p in load_suite(c)} for c in DeviceClass)

    assert [splits == cpu for splits in others] == [True] * len(others)


def test_controls_are_on_both_sides_of_the_split() -> None:
    sizes = load_sizes(FOLDER / "sizes.yaml")

    heldout = [name in sizes.heldout for name in sizes.nothing_to_gain]

    assert len(heldout) >= 6
    assert {True, False} == set(heldout)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("level*/*.py")), ids=lambda path: path.stem)
def test_a_shipped_file_imports_nothing_but_torch(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }

    assert imported <= {"torch", "torch.nn", "torch.nn.functional"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("level*/*.py")), ids=lambda path: path.stem)
def test_a_shipped_file_does_not_mention_possible_gains(path: Path) -> None:
    text = path.read_text().lower()

    assert [word for word in ("to gain", "redundan", "faster", "would do") if word in text] == []


@pytest.fixture
def small_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a suite of one problem in place of the shipped one."""
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "01_toy.py").write_text(SOURCE)
    (tmp_path / "sizes.yaml").write_text("cpu:\n  level1/01_toy: {N: 2}\n")
    monkeypatch.setattr(loader, "FOLDER", tmp_path)
    return tmp_path


def test_sizes_replace_the_constants_of_their_device_class(small_suite: Path) -> None:
    (cpu,), (cuda,) = load_suite(DeviceClass.CPU), load_suite(DeviceClass.CUDA)

    assert (cpu.source, cuda.source) == (SOURCE.replace("4", "2"), SOURCE)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("cpu:\n  level1/01_toy: {M: 2}\n", "no top-level constant named M"),
        ("cpu:\n  level1/02_toy: {N: 2}\n", "no such problem: level1/02_toy"),
        ("heldout: [level1/99_toy]\n", "no such problem: level1/99_toy"),
        ("cpu:\n  level1/01_toy: {N: {a: 1}}\n", "cpu.level1/01_toy.N"),
        ("gpu:\n  level1/01_toy: {N: 2}\n", "gpu: Extra inputs are not permitted"),
        ("[1, 2]\n", "must map a device class"),
        ("cpu: {a: [\n", "cannot be read"),
    ],
)
def test_a_wrong_sizes_file_gives_one_line_that_names_it(
    small_suite: Path, sizes: str, said: str
) -> None:
    (small_suite / "sizes.yaml").write_text(sizes)

    with pytest.raises(SuiteError) as raised:
        load_suite(DeviceClass.CPU)

    message = str(raised.value)
    assert said in message
    assert str(small_suite) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "change",
    [("level1/01_toy.py", SOURCE + "# more\n"), ("sizes.yaml", "heldout: [level1/01_toy]\n")],
)
def test_the_revision_follows_the_content_of_the_folder(
    small_suite: Path, change: tuple[str, str]
) -> None:
    before = load_suite(DeviceClass.CUDA)[0].revision
    (small_suite / change[0]).write_text(change[1])

    assert load_suite(DeviceClass.CUDA)[0].revision != before


def test_revisions_of_all_device_classes_are_equal() -> None:
    assert len({load_suite(device_class)[0].revision for device_class in DeviceClass}) == 1


def test_any_file_becomes_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "my-fast_op.py"
    path.write_text(SOURCE)

    problem = load_file(path, device_class=DeviceClass.CPU, sizes={"N": 8})

    assert (problem.suite, problem.number, problem.name) == ("own", 1, "my_fast_op")
    assert "N = 8" in problem.source


@pytest.mark.parametrize(
    "content",
    [
        SOURCE.encode("utf-8-sig"),
        SOURCE.replace("\n", "\r\n").encode(),
        SOURCE.replace("\n", "\r").encode(),
    ],
)
def test_a_byte_order_mark_and_line_ends_change_no_id(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plain.py").write_text(SOURCE)
    (tmp_path / "other.py").write_bytes(content)
    plain, other = (
        load_file(tmp_path / f"{name}.py", device_class=DeviceClass.CPU, sizes={"N": 8})
        for name in ("plain", "other")
    )

    assert (other.id, other.source) == (plain.id, plain.source)


def test_a_files_number_and_name_are_read_from_its_name(tmp_path: Path) -> None:
    path = tmp_path / "37_FrobeniusNorm_-Max_.py"
    path.write_text(SOURCE)

    problem = load_file(path, device_class=DeviceClass.CPU)

    assert (problem.number, problem.name) == (37, "frobeniusnorm_max")


def test_equal_files_have_equal_ids_and_revisions(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(SOURCE)
    a, b = (load_file(tmp_path / n, device_class=DeviceClass.CPU) for n in ("a.py", "b.py"))

    assert (a.id, a.revision) == (b.id, b.revision)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"def broken(:\n", "not valid Python (line 1"),
        (b"x = '\xff'\n", "not UTF-8 text (byte 5)"),
        (b"x = 1\0\n", "null byte"),
        (b"x = " + b"-" * 100_000 + b"1\n", "not valid Python (nested too deeply)"),
        (b"x = 1" + b".real" * 100_000 + b"\n", "not valid Python ("),
        ("\n".join(["x = 1"] * 9).encode("utf-16"), "UTF-16; save it as UTF-8"),
        (b"# coding: rot13\n", "names the encoding rot13"),
    ],
)
def test_a_malformed_file_gives_one_line_that_names_it(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SuiteError) as raised:
        load_file(path, device_class=DeviceClass.CPU)

    message = str(raised.value)
    assert said in message
    assert str(path) in message
    assert "\n" not in message
