"""Tests of `cudal1 check` as a user runs it, with a real judge."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.harness.device.device import find_device
from cudal1.kept import Kept
from cudal1.problem import DeviceClass
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.settings import protocols
from cudal1.suite.loader import load_file
from tests.cli.conftest import FASTER, PROBLEM, complaints
from tests.services.kept_verdicts import verdict_of

pytestmark = pytest.mark.slow
Run = Callable[..., "subprocess.CompletedProcess[str]"]
THRICE = """        for _ in range(3):
            y = x * torch.sigmoid(x)
        return y"""
TRIES = 4
"""Most updates until a gain is certified: on a busy machine some verdicts show none."""
LITTLE = 1.06
"""A proven speedup that the version surely has."""


@pytest.fixture
def record(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    thrice = PROBLEM.replace("        return x * torch.sigmoid(x)", THRICE)
    (folder / "model.py").write_text(thrice.replace("N = 64", "N = 256"))
    problem = load_file(folder / "model.py", device_class=DeviceClass.CPU)
    proof = keeping.proof_of(
        problem,
        "model.py",
        verdict_of(Candidate(problem_id=problem.id, source=FASTER), speedup=LITTLE),
        device=find_device(DeviceClass.CPU),
        protocol=protocols.load("cpu"),
        inputs=("float32[256, 256]",),
        sessions=[LITTLE] * 10,
    )
    kept = Kept(
        version="model.faster.py",
        candidate_source_id=content_id(FASTER),
        replaces=None,
        proofs=(proof,),
    )
    return records.write(folder, "model", FASTER, kept)


def test_a_version_is_checked_and_reports_are_written(
    run: Run, record: Path, tmp_path: Path
) -> None:
    done = run("check", "kept", "--device", "cpu", "--junit", "check.xml", "--markdown", "check.md")
    assert done.returncode == 0, done.stderr
    assert complaints(done) == []
    first, count = done.stdout.splitlines()
    assert first.startswith("fine: kept/model.faster.json: model.py: ")
    assert count == "1 proofs: 1 fine"
    suite = ElementTree.parse(tmp_path / "check.xml").getroot()
    assert suite.get("failures") == "0"
    assert "| model.faster.py | model.py | cpu |" in (tmp_path / "check.md").read_text()
    before = record.read_bytes()
    assert run("check", "kept", "--device", "cpu").returncode == 0
    assert record.read_bytes() == before


def test_an_edited_version_is_told_and_updated_once_a_person_says_so(
    run: Run, record: Path
) -> None:
    record.with_name("model.faster.py").write_text(FASTER + "\n# edited\n")
    done = run("check", str(record), "--device", "cpu", "--json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["state"] == "changed"
    assert found["verdict"]["status"] == "correct"
    for _ in range(TRIES):
        done = run("check", str(record), "--device", "cpu", "--update")
        if "prove nothing new" not in done.stderr:
            break
    assert "proven anew" in done.stderr
    (found,) = json.loads(run("check", str(record), "--device", "cpu", "--json").stdout)
    assert found["state"] == "fine" or "check it when it is calm" in found["reason"]


def test_a_version_that_is_wrong_ends_with_1(run: Run, record: Path) -> None:
    wrong = FASTER.replace("silu(x)", "silu(x) + 0.1")
    record.with_name("model.faster.py").write_text(wrong)
    before = record.read_bytes()
    done = run("check", "kept", "--device", "cpu", "--update")
    assert done.returncode == 1
    assert "edited since; incorrect: " in done.stdout
    assert record.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "nothing: there is no such folder; name one with *.faster.json files"),
        (["locks"], "locks: holds no *.faster.json; cudal1 optimize writes them"),
        (["kept", "--junit", "no/x.xml"], "no/x.xml: there is no folder no"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, run: Run, record: Path) -> None:
    done = run("check", *arguments, "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [said]
    assert done.stdout == ""


def test_a_folder_without_proofs_of_this_device_ends_with_2(run: Run, record: Path) -> None:
    kept = records.read(record)
    proofs = tuple(
        proof.model_copy(update={"versions": {"processor": "X"}}) for proof in kept.proofs
    )
    records.write_record(record, kept.model_copy(update={"proofs": proofs}))
    done = run("check", "kept", "--device", "cpu")
    assert done.returncode == 2
    assert "elsewhere: kept/model.faster.json: model.py: proven on X; here is " in done.stdout
