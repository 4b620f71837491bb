"""Extensions are compiled ahead, once and without a device; compiler errors are verdicts."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.builds import builder as building
from cudal1.harness.builds.builder import Builder, num_beside, num_idle
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.device.quiet import judging_cores, timing_core
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.device_processes import processes_here
from cudal1.harness.schedule.fleet import Fleet
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
# cudal1 needs no compiler, so a machine that tests it may have none
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


@pytest.fixture(scope="module")
def gpu_builder(quick: EvalProtocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A builder for a GPU that this machine does not have."""
    folder = tmp_path_factory.mktemp("builds_for_a_gpu") / "made"
    gpu = Device(
        device_class=DeviceClass.CUDA, kind="gpu", id="gpu", worker_core=None, arch="9.0+PTX"
    )
    with Builder([gpu], quick, folder, num_workers=1) as opened:
        yield opened


@pytest.mark.slow
def test_a_build_made_ahead_is_kept_for_its_source_alone(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu, source = named_problem("silu"), TOP + "make()"
    assert builder.takes(candidate_of(silu, source))
    assert built(builder, silu, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(silu, source))
    assert not builder.takes(candidate_of(silu, source))
    assert not builder.content(candidate_of(silu, source + "\n"))


def test_another_builder_finds_a_kept_build(builder: Builder, named_problem: NamedProblem) -> None:
    silu, source = named_problem("silu"), TOP + "make()  # for others"
    built(builder, silu, source)
    with Builder(
        [find_device(DeviceClass.CPU)], builder._protocol, builder._folder, num_workers=0
    ) as other:
        assert other.content(candidate_of(silu, source))


def test_a_source_that_compiles_nothing_is_known_and_not_built_again(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    candidate = candidate_of(silu, TOP)
    assert builder.begin(silu, candidate).result() is None
    assert not builder.takes(candidate)


def test_a_source_that_finds_no_device_has_not_failed(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu, source = named_problem("silu"), TOP + "make()\ntorch.zeros(1, device='cuda')"
    assert built(builder, silu, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(silu, source))


CONSTRUCTED = {
    "with the problem's arguments": "        assert size == 128\n        make()",
    "before it fails": "        make()\n        raise ValueError",
    "before it wants a device": "        make()\n        self.cuda()",
    "though it goes on after what fails": """
        try:
            torch.zeros(1, device="cuda")
        except Exception:
            make()
    """,
}
MODULE = """

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
{}

    def forward(self, x):
        {}
"""


@pytest.mark.parametrize("how", CONSTRUCTED)
def test_a_constructor_s_extension_is_compiled_ahead(
    builder: Builder, how: str, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    source = TOP + MODULE.format(CONSTRUCTED[how], "return x")
    assert built(builder, linear, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(linear, source))


@pytest.mark.parametrize(
    "call",
    [
        "make()",
        "make(); os.kill(os.getpid(), 11)",
        "make(); os._exit(3)",
        "make(); raise SystemExit",
    ],
)
def test_a_first_call_s_extension_is_kept_whatever_ends_the_call(
    builder: Builder, call: str, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    source = TOP + MODULE.format("", call)
    assert built(builder, linear, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(linear, source))


ON_A_GPU = {
    "asks in its constructor": "        if torch.cuda.is_available():\n            make()",
    "moves before": """
        self.cuda()
        self.other = nn.Linear(2, 2).to(torch.device("cuda", 0), torch.float16)
        self.table = torch.zeros(2, device="cuda") + torch.ones(2).cuda()
        self.one = torch.ones(1).to(0)
        self.same = torch.ones(1).to(self.table)
        assert self.linear.weight.is_cuda and self.same.is_cuda and self.one.is_cuda
        assert self.other.weight.dtype is torch.float16
        make()
    """,
    "asks what it can": """
        if torch.cuda.get_device_capability() == (9, 0) and torch.cuda.device_count() == 1:
            make()
    """,
    "draws weights": """
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(size, size))
        nn.init.kaiming_uniform_(self.weight)
        self.register_buffer("sum", self.weight.sum().cuda())
        make()
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ON_A_GPU)
def test_an_extension_that_is_compiled_only_beside_a_gpu_is_compiled_ahead(
    gpu_builder: Builder, how: str, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    source = TOP + MODULE.format(ON_A_GPU[how], "return x")
    assert built(gpu_builder, linear, source) is None
    assert b"extensions/ours" in gpu_builder.content(candidate_of(linear, source))


@pytest.mark.slow
def test_an_extension_of_a_call_on_a_gpu_is_compiled_ahead(
    gpu_builder: Builder, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    calls = "y = self.linear(x); assert y.is_cuda and y.shape == x.shape; make()"
    source = TOP + MODULE.format("", calls)
    assert built(gpu_builder, linear, source) is None
    assert b"extensions/ours" in gpu_builder.content(candidate_of(linear, source))


def test_a_builder_without_a_gpu_pretends_none(
    builder: Builder, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    source = TOP + MODULE.format(ON_A_GPU["asks in its constructor"], "return x")
    assert built(builder, linear, source) is None
    assert builder.content(candidate_of(linear, source)) == b""


@pytest.mark.slow
def test_a_large_module_takes_no_memory_on_a_pretended_gpu(
    gpu_builder: Builder, named_problem: NamedProblem
) -> None:
    linear = named_problem("linear")
    large = "        self.large = nn.Linear(1 << 16, 1 << 16)  # 16 GiB\n        make()"
    source = TOP + MODULE.format(large, "return x")
    assert built(gpu_builder, linear, source) is None
    assert b"extensions/ours" in gpu_builder.content(candidate_of(linear, source))


def test_a_problem_that_fails_costs_only_the_builds_that_need_it(
    builder: Builder, named_problem: NamedProblem
) -> None:
    said = "Error building extension 'theirs': [1/2] c++\nmain.cpp:3: error: 'y' not declared"
    linear = named_problem("linear")
    broken = linear.model_copy(update={"source": SAYS.format(said)})
    source = TOP + "make()" + MODULE.format("        make()", "return x")
    assert built(builder, broken, source) is None
    assert b"extensions/ours" in builder.content(candidate_of(broken, source))


def test_a_half_compiled_extension_is_kept_without_its_lock(
    builder: Builder, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    locks = (
        "make()\nmade.with_name('half').mkdir()\nmade.with_name('half').joinpath('lock').touch()"
    )
    assert built(builder, silu, TOP + locks) is None
    content = builder.content(candidate_of(silu, TOP + locks))
    assert b"extensions/half" in content
    assert b"half/lock" not in content


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 11)", "raise SystemExit"])
def test_a_candidate_that_ends_during_its_build_is_left_to_the_judge(
    builder: Builder, end: str, named_problem: NamedProblem
) -> None:
    assert built(builder, named_problem("silu"), TOP + end) is None


@pytest.mark.parametrize("where", ["import", "constructor"])
def test_a_compiler_error_in_the_source_is_a_verdict(
    builder: Builder, where: str, named_problem: NamedProblem
) -> None:
    said = "Error building extension 'ours': [1/2] c++ ...\nmain.cpp:3: error: 'y' not declared\n"
    raises = SAYS.format(said)
    source = TOP + (raises if where == "import" else MODULE.format(f"        {raises}", "return x"))
    failure = built(builder, named_problem("linear"), source)
    assert failure is not None
    assert failure.status is Status.NO_BUILD
    assert "main.cpp:3: error: 'y' not declared" in failure.reason


@pytest.mark.parametrize(
    "said",
    [
        "Error building extension 'a': c++: fatal error: Killed signal terminated program cc1plus",
        "Error building extension 'a': main.cu:3: error: x\n"
        "nvcc error: 'cicc' died due to signal 9",
        "Error building extension 'a': main.cpp:1:2: internal compiler error: Segmentation fault",
        "Error building extension 'a': main.cpp:1:2: fatal error: x.o: No space left on device",
        "Error building extension 'a': nvcc fatal : Unsupported gpu architecture 'compute_70'",
        "Error building extension 'a': ld: final link failed: memory exhausted",
    ],
)
def test_a_compiler_error_that_the_machine_may_cause_is_left_to_the_judge_and_not_kept(
    builder: Builder, said: str, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    candidate = candidate_of(silu, TOP + "make()\n" + SAYS.format(said))
    assert builder.begin(silu, candidate).result() is None
    assert builder.content(candidate) == b""
    assert builder.takes(candidate)


@pytest.mark.parametrize(
    "how",
    [
        "if not torch.cuda.is_available():\n    {}",
        "try:\n    torch.zeros(1, device='cuda')\nexcept Exception:\n    {}",
        "if not os.path.exists('/dev/nvidia0'):\n    {}",
    ],
)
def test_a_compiler_error_that_may_differ_beside_a_device_is_left_to_the_judge(
    builder: Builder, how: str, named_problem: NamedProblem
) -> None:
    said = "Error building extension 'ours'\nmain.cpp:3: error: 'y' not declared"
    assert built(builder, named_problem("silu"), TOP + how.format(SAYS.format(said))) is None


def test_a_compiler_error_in_the_first_call_is_left_to_the_judge(
    builder: Builder, named_problem: NamedProblem
) -> None:
    said = "Error building extension 'ours'\nmain.cpp:3: error: 'y' not declared"
    linear, source = named_problem("linear"), TOP + MODULE.format("", SAYS.format(said))
    assert built(builder, linear, source) is None
    assert not builder.takes(candidate_of(linear, source))


@pytest.mark.slow
@pytest.mark.parametrize("does", ["time.sleep(600)", "while True:\n    pass"])
def test_a_build_that_never_ends_is_left_to_the_judge(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem, does: str
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    short = quick.model_copy(update={"start_timeout_s": 0.5, "build_timeout_s": 1.0})
    with Builder([device], short, tmp_path, num_workers=1) as opened:
        candidate = candidate_of(silu, TOP + "make()\n" + does)
        assert opened.begin(silu, candidate).result(120) is None
        assert opened.takes(candidate)


def test_compilers_are_few_and_off_the_cores_of_judges(
    builder: Builder, named_problem: NamedProblem
) -> None:
    writes = "made.write_text(f'{sorted(os.sched_getaffinity(0))} ' + os.environ['MAX_JOBS'])"
    silu = named_problem("silu")
    candidate = candidate_of(silu, TOP + "make()\n" + writes)
    builder.begin(silu, candidate).result()
    cores = sorted(os.sched_getaffinity(0) - set(builder._devices[False].reserved_cores))
    free = cores or sorted(os.sched_getaffinity(0))  # with two cores no builder runs, except here
    assert f"{free} 2".encode() in builder.content(candidate)


@pytest.mark.slow
def test_a_dead_zygote_is_replaced(builder: Builder, named_problem: NamedProblem) -> None:
    silu = named_problem("silu")
    built(builder, silu, TOP + "make()  # starts it")
    (before,) = builder._zygotes.values()
    before._source._process.kill()
    before._source._process.wait()
    built(builder, silu, TOP + "make()  # again")
    assert [*builder._zygotes.values()] != [before]
    assert builder.content(candidate_of(silu, TOP + "make()  # again"))


def test_failed_starts_of_workers_are_reported_and_stop_the_builder(
    tmp_path: Path,
    quick: EvalProtocol,
    named_problem: NamedProblem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Device] = []

    def refuses(device: Device, **_: object) -> None:
        asked.append(device)
        raise WorkerError("the process that starts workers did not start")

    monkeypatch.setattr(building, "Zygote", refuses)
    silu = named_problem("silu")
    with Builder([find_device(DeviceClass.CPU)], quick, tmp_path, num_workers=1) as opened:
        for number in range(4):
            assert built(opened, silu, TOP + f"# {number}") is None
        assert len(asked) == building.MAX_FAILED_STARTS
        assert "not compiled ahead: the process that starts workers" in opened.complaint
        assert not opened.takes(candidate_of(silu, TOP))


@pytest.mark.parametrize(
    "source",
    ["import torch\n", TOP + ")", TOP + "#" * (1 << 20)],
    ids=["compiles nothing", "no Python", "too long"],
)
def test_a_source_that_need_not_be_built_is_not_taken(
    builder: Builder, source: str, named_problem: NamedProblem
) -> None:
    assert not builder.takes(candidate_of(named_problem("silu"), source))


@pytest.mark.slow
def test_closing_does_not_wait_for_compilers(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    with Builder([device], quick, tmp_path, num_workers=1) as opened:
        opened.begin(silu, candidate_of(silu, TOP + "make()")).result()  # warmed up
        futures = [
            opened.begin(silu, candidate_of(silu, TOP + f"time.sleep({600 + number})"))
            for number in range(2)
        ]
        time.sleep(0.5)
        started = time.monotonic()
    assert time.monotonic() - started < 200
    assert all(future.done() for future in futures)


def test_each_judge_and_each_worker_has_a_core_without_compilers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setitem(building.PROCESSES, DeviceClass.CUDA, 1)
    devices = [
        Device(
            device_class=DeviceClass.CUDA,
            kind="gpu",
            id=f"{core}",
            worker_core=core,
            reserved_cores=(core,),
        )
        for core in (5, 4, 3)
    ]
    monkeypatch.setattr(building, "COMPILER_BYTES", 1)
    monkeypatch.setattr(building, "FOLDER_BYTES", 1)
    assert [num_idle(devices[:number]) for number in (1, 2, 3)] == [4, 2, 0]
    assert building.judges_cores(devices[:2], is_measured=True) == (0, 1, 4, 5)
    for processes, number in ((2, 2), (3, 2), (5, 1)):  # a core left over counts
        monkeypatch.setitem(building.PROCESSES, DeviceClass.CUDA, processes)
        assert num_idle(devices[:1]) == number
    assert num_idle(devices) == 0
    monkeypatch.setattr(building, "COMPILER_BYTES", 1 << 60)
    assert num_idle(devices[:1]) == 0


def test_idle_judges_leave_cores_to_compilers_and_workers_leave_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(building, "COMPILER_BYTES", 1)
    monkeypatch.setattr(building, "FOLDER_BYTES", 1)
    lanes = tuple(range(15, 9, -1))
    gpu = Device(
        device_class=DeviceClass.CUDA,
        kind="gpu",
        id="0",
        worker_core=15,
        reserved_cores=lanes,
        lane_cores=lanes,
    )
    measured = building.judges_cores([gpu], is_measured=True)
    idle = building.judges_cores([gpu], is_measured=False)
    assert (measured, idle) == ((*range(6), *sorted(lanes)), (4, 5, *sorted(lanes)))
    assert timing_core(gpu, set(range(16))) in set(idle) - set(lanes)
    assert judging_cores(gpu, set(range(16))) == set(measured) - set(lanes)
    assert (num_idle([gpu]), num_beside([gpu])) == (5, 3)  # 1.6 compilers each, on 8 and 4 cores


@pytest.mark.parametrize(
    ("num_workers", "makes_room", "most"), [(6, False, 6), (6, True, 3), (3, True, 2), (1, True, 1)]
)
def test_fewer_builds_run_at_a_time_during_measurements(
    tmp_path: Path,
    quick: EvalProtocol,
    named_problem: NamedProblem,
    monkeypatch: pytest.MonkeyPatch,
    num_workers: int,
    makes_room: bool,
    most: int,
) -> None:
    now: list[int] = []
    numbers: list[int] = []
    order: list[int] = []
    has_come = threading.Condition()

    def built(_: Builder, __: Problem, candidate: Candidate, ___: object) -> None:
        with has_come:
            order.append(int(candidate.source.split()[-1]))
            now.append(1)
            numbers.append(len(now))
            has_come.notify_all()
            has_come.wait_for(lambda: max(numbers) >= most, timeout=60)
        time.sleep(0.1)  # time for one too many to come
        now.pop()

    monkeypatch.setattr(Builder, "_built", built)
    cpu = find_device(DeviceClass.CPU)
    with Builder([cpu], quick, tmp_path, num_workers=num_workers) as opened:
        opened.make_room(wanted=makes_room)
        silu = named_problem("silu")
        futures = [opened.begin(silu, candidate_of(silu, f"{TOP}# {i}")) for i in range(12)]
        assert [future.result() for future in futures] == [None] * 12
    assert max(numbers) == most
    assert sorted(order) == list(range(12))
    if most == 1:  # threads that begin at the same time come here in any order
        assert order == list(range(12))


def test_a_waiting_build_may_be_passed_over_and_come_again(
    tmp_path: Path,
    quick: EvalProtocol,
    named_problem: NamedProblem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, order = threading.Event(), list[str]()

    def built(_: Builder, __: Problem, candidate: Candidate, ___: object) -> None:
        order.append(candidate.source[-1])
        go_on.wait(60)

    monkeypatch.setattr(Builder, "_built", built)
    silu = named_problem("silu")
    made = [candidate_of(silu, f"{TOP}# {i}") for i in range(5)]
    with Builder([find_device(DeviceClass.CPU)], quick, tmp_path, num_workers=2) as opened:
        opened.make_room(wanted=True)  # one build at a time
        futures = [opened.begin(silu, each) for each in made]
        while not order:
            time.sleep(0.01)
        for each in made[1:]:
            opened.pass_over(each)
        again = opened.begin(silu, made[2])
        opened.pass_over(made[0])  # it has begun already
        go_on.set()
        assert [futures[0].result(60), again.result(60)] == [None, None]
    assert sorted(order) == ["0", "2"]
    assert all(future.done() for future in futures)


def test_waiting_builds_are_given_up_at_the_end(
    tmp_path: Path,
    quick: EvalProtocol,
    named_problem: NamedProblem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Builder, "_may_build", lambda *_: False)
    silu = named_problem("silu")
    with Builder([find_device(DeviceClass.CPU)], quick, tmp_path, num_workers=2) as opened:
        futures = [opened.begin(silu, candidate_of(silu, f"{TOP}# {i}")) for i in range(2)]
    assert all(future.cancelled() or future.result(1) is None for future in futures)


def test_a_builder_without_a_core_takes_nothing(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    with Builder([find_device(DeviceClass.CPU)], quick, tmp_path, num_workers=0) as opened:
        assert not opened.takes(candidate_of(named_problem("silu"), TOP))


@pytest.mark.slow
@needs_compiler
def test_an_extension_is_compiled_ahead_and_only_loaded_by_the_judge(
    quick: EvalProtocol, named_problem: NamedProblem, tmp_path: Path
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    broken = EXTENSION.replace("torch::sigmoid(x)", "nothing_of_the_kind(x)")
    work = [(silu, candidate_of(silu, source)) for source in (EXTENSION, broken, silu.null_source)]
    builder = Builder([device], quick, tmp_path, num_workers=1)
    with (
        processes_here([device]) as device_processes,
        builder,
        Fleet(device_processes, quick, builder=builder) as fleet,
    ):
        found = list(fleet.judge_all(work, timing=False))
        judged = {j.verdict.candidate_id: j.verdict for j in found if isinstance(j, Judgement)}
        good, bad, plain = (judged[candidate.id] for _, candidate in work)
        assert good.status is plain.status is Status.CORRECT, good.reason
        assert good.judge_s < 10 + plain.judge_s
        assert bad.status is Status.NO_BUILD
        assert "nothing_of_the_kind" in (bad.reason or "")
        assert found[0] == next(j for j in found if isinstance(j, Judgement) and j.verdict is plain)
