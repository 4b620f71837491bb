"""What candidates compile is compiled ahead, once, without a device; failures are verdicts."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness import builder as building
from cudal1.harness import find_device
from cudal1.harness.builder import Builder, num_idle, toolchain
from cudal1.harness.fleet import Fleet
from cudal1.harness.judge import Judgement
from cudal1.harness.progress import Failure
from cudal1.harness.seats import seats_here
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

NamedProblem = Callable[[str], Problem]
TOP = """
# torch.utils.cpp_extension
import os
import time
from pathlib import Path

import torch
import torch.nn as nn

made = Path(os.environ["TORCH_EXTENSIONS_DIR"], "ours")


def make():
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(bytes(300))


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
EXTENSION = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ours = load_inline(
    "ours",
    cpp_sources="torch::Tensor silu(torch::Tensor x) { return x * torch::sigmoid(x); }",
    functions=["silu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.silu(x)
"""
SAYS = "raise RuntimeError({!r})"
needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("ninja")), reason="no compiler here"
)


@pytest.fixture(scope="module")
def builder(quick: EvalProtocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("builds") / "made"
    with Builder([find_device(DeviceClass.CPU)], quick, folder, num_workers=1) as opened:
        yield opened


def candidate_of(problem: Problem, source: str) -> Candidate:
    return Candidate(problem_id=problem.id, source=source)


def built(builder: Builder, problem: Problem, source: str) -> Failure | None:
    return builder.begin(problem, candidate_of(problem, source)).result()


def test_what_is_compiled_ahead_is_kept_for_that_source(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu, source = named_problem("silu"), TOP + "make()"
    assert builder.takes(candidate_of(silu, source))
    assert built(builder, silu, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(silu, source))
    assert not builder.takes(candidate_of(silu, source))
    assert not builder.content(candidate_of(silu, source + "\n"))


def test_another_builder_finds_it_but_not_with_another_toolchain(
    builder: Builder, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    silu, source = named_problem("silu"), TOP + "make()  # for others"
    built(builder, silu, source)
    with Builder(
        [find_device(DeviceClass.CPU)], builder._protocol, builder._folder, num_workers=0
    ) as other:
        assert other.content(candidate_of(silu, source))
        monkeypatch.setattr(building, "toolchain", lambda _: "another")
        assert not other.content(candidate_of(silu, source))


def test_the_architecture_and_where_workers_write_are_of_the_toolchain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert toolchain("9.0") != toolchain("8.0")
    before = toolchain("9.0")
    toolchain.cache_clear()
    assert toolchain("9.0") == before
    monkeypatch.setattr(building.places, "HOME", "/elsewhere")
    toolchain.cache_clear()
    assert toolchain("9.0") != before
    toolchain.cache_clear()


def test_who_finds_no_device_has_not_failed(builder: Builder, named_problem: NamedProblem) -> None:
    silu, source = named_problem("silu"), TOP + "make()\ntorch.zeros(1, device='cuda')"
    assert built(builder, silu, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(silu, source))


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 11)", "raise SystemExit"])
def test_who_ends_meanwhile_is_left_to_the_judge(
    builder: Builder, end: str, named_problem: NamedProblem
) -> None:
    assert built(builder, named_problem("silu"), TOP + end) is None


def test_what_a_compiler_says_of_the_source_is_a_verdict(
    builder: Builder, named_problem: NamedProblem
) -> None:
    said = "Error building extension 'ours': [1/2] c++ ...\nmain.cpp:3: error: 'y' not declared\n"
    failure = built(builder, named_problem("silu"), TOP + SAYS.format(said))
    assert failure is not None
    assert failure.status is Status.NO_BUILD
    assert "main.cpp:3: error: 'y' not declared" in failure.reason


@pytest.mark.parametrize("said", [
    "Error building extension 'a': c++: fatal error: Killed signal terminated program cc1plus",
    "Error building extension 'a': cannot find a GPU for '-arch=native': error",
    "Error building extension 'a': error: No space left on device",
    "Ninja is required to load C++ extensions", "no CUDA-capable device is detected",
])  # fmt: skip
def test_what_the_machine_may_be_to_blame_for_is_left_to_the_judge(
    builder: Builder, said: str, named_problem: NamedProblem
) -> None:
    assert built(builder, named_problem("silu"), TOP + SAYS.format(said)) is None


def test_who_never_ends_has_timed_out(
    builder: Builder, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "LIMIT_S", 0.5)
    failure = built(builder, named_problem("silu"), TOP + "time.sleep(60)")
    assert failure is not None
    assert failure.status is Status.TIMED_OUT
    assert "compiling" in failure.reason


def test_who_compiles_yields_to_everybody(builder: Builder, named_problem: NamedProblem) -> None:
    says = "nice = Path('/proc/self/stat').read_text().rpartition(')')[2].split()[16]"
    writes = "made.write_text(f'nice {nice} jobs ' + os.environ['MAX_JOBS'])"
    source = "\n".join([TOP + "make()", says, writes])
    built(builder, named_problem("silu"), source)
    content = builder.content(candidate_of(named_problem("silu"), source))
    assert b"nice 19 jobs 2" in content


def test_a_process_that_forks_no_more_is_replaced(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    built(builder, silu, TOP + "make()  # starts it")
    assert builder._zygote is not None
    builder._zygote._source._process.kill()
    builder._zygote.renew()
    assert built(builder, silu, TOP + "make()  # is left to the judge") is None
    assert built(builder, silu, TOP + "make()  # again") is None
    assert builder.content(candidate_of(silu, TOP + "make()  # again"))


@pytest.mark.parametrize("source", [
    "import torch\n", TOP + ")", TOP + "#" * (1 << 20),
], ids=["compiles nothing", "no Python", "too long"])  # fmt: skip
def test_who_need_not_be_built_is_not(
    builder: Builder, source: str, named_problem: NamedProblem
) -> None:
    assert not builder.takes(candidate_of(named_problem("silu"), source))


def test_a_full_disk_loses_no_candidate(
    builder: Builder, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    assert builder._kept is not None
    monkeypatch.setattr(builder._kept, "set", full)
    silu, source = named_problem("silu"), TOP + "make()  # on a full disk"
    assert built(builder, silu, source) is None
    assert builder.content(candidate_of(silu, source)) == b""


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, quick: EvalProtocol) -> None:
    (tmp_path / "file").write_text("")
    device = find_device(DeviceClass.CPU)
    with pytest.raises(ConfigError, match=r"file.*XDG_CACHE_HOME"):
        Builder([device], quick, tmp_path / "file", num_workers=0).__enter__()


def test_leaving_does_not_wait_for_compilers(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    with Builder([device], quick, tmp_path, num_workers=1) as opened:
        opened.begin(silu, candidate_of(silu, TOP + "make()")).result()  # warmed up
        futures = [
            opened.begin(silu, candidate_of(silu, TOP + f"time.sleep({60 + number})"))
            for number in range(2)
        ]
        time.sleep(0.5)
        started = time.monotonic()
    assert time.monotonic() - started < 30
    assert all(future.done() for future in futures)


def test_each_judge_and_each_worker_has_a_core_that_nobody_compiles_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = find_device(DeviceClass.CPU)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(building, "COMPILER_BYTES", 1)
    assert [num_idle([device] * number) for number in (1, 2, 3, 4)] == [4, 2, 0, 0]
    monkeypatch.setattr(building, "COMPILER_BYTES", 1 << 60)
    assert num_idle([device]) == 0


def test_where_no_core_is_left_nothing_is_built_ahead(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    with Builder([find_device(DeviceClass.CPU)], quick, tmp_path, num_workers=0) as opened:
        assert not opened.takes(candidate_of(named_problem("silu"), TOP))


@pytest.mark.slow
@needs_compiler
def test_an_extension_is_compiled_ahead_and_only_loaded_where_it_is_judged(
    quick: EvalProtocol, named_problem: NamedProblem, tmp_path: Path
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    broken = EXTENSION.replace("torch::sigmoid(x)", "nothing_of_the_kind(x)")
    work = [(silu, candidate_of(silu, source)) for source in (EXTENSION, broken, silu.null_source)]
    builder = Builder([device], quick, tmp_path, num_workers=1)
    with seats_here([device]) as seats, builder, Fleet(seats, quick, builder=builder) as fleet:
        found = list(fleet.judge_all(work, timing=False))
        judged = {j.verdict.candidate_id: j.verdict for j in found if isinstance(j, Judgement)}
        good, bad, plain = (judged[candidate.id] for _, candidate in work)
        assert good.status is plain.status is Status.CORRECT, good.reason
        assert good.judge_s < 10 + plain.judge_s
        assert bad.status is Status.NO_BUILD
        assert "nothing_of_the_kind" in (bad.reason or "")
        assert found[0] == next(j for j in found if isinstance(j, Judgement) and j.verdict is plain)
