"""Fixtures of all harness tests: open pools, tiny problems, a quick protocol and workers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.device.device import find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.sandbox.layers import MINIMUM
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.shared.wire import State
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule
from tests.harness.inside import Start, Told, open_zygote, start_worker, until
from tests.turns import Turns

QUICK = EvalProtocol(
    correctness_stages=(3, 16, 32),
    contract=Contract.KERNELBENCH,
    mode=Mode.CONSTRUCTED,
    precision=PrecisionClass.STRICT,
    timing=True,
    rule=Rule.CERTIFIED,
    window_s=None,
    burst_us=2000,
    max_burst_calls=32,
    ring_bytes=32 << 20,
    min_quads=9,
    max_quads=24,
    alpha=0.01,
    certify_within=0.1,
    max_claim=10.0,
    dead_zone=1.02,
    num_buckets=7,
    max_bucket_variance=0.04,
    confirm_above=1.0,  # every gain, as on any CPU: two processes differ
    confirm_below=1.0,
    give_up_alpha=0.1,
    confirm_above_record=2.0,
    confirm_within=0.25,
    slow_factor=1000.0,
    start_timeout_s=20.0,
    build_timeout_s=120.0,
    call_timeout_s=2.0,
    memory_bytes=1 << 30,
    seed=7,
)

HEADER = "import torch\nimport torch.nn as nn\n\n"

FAKE_HEADER = HEADER + "from cudal1.harness.worker import fake\n"

SOURCES = {
    # positive and negative inputs, no weights
    "silu": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # the same with larger inputs, beside which the harness's own cost is small
    "large_silu": HEADER
    + """
N = 384

class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    "softmax": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
        return e / e.sum(dim=-1, keepdim=True)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    "linear": HEADER
    + """
N = 128

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return [N]
""",
    # the reference does the work twice
    "wasteful": HEADER
    + """
N = 192

class Model(nn.Module):
    def forward(self, x, y):
        first = x @ y
        second = x @ y
        return (first + second) / 2

def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # calls of several milliseconds
    "heavy": HEADER
    + """
N = 512

class Model(nn.Module):
    def forward(self, x, y):
        return x @ y

def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # the work of `wasteful` with weights, so wasteful that the claim must be confirmed
    "wasteful_linear": HEADER
    + """
N = 128

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        total = self.linear(x)
        for _ in range(15):
            total = total + self.linear(x)
        return total / 16

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return [N]
""",
    "transpose": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        return x.t()

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    "in_place": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        return x.mul_(2.0)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # most of the work is for values that its own generator never draws
    "rarely_far": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        far = torch.sqrt(x * x + 1.0) * torch.atan(x) + torch.tanh(x)
        return torch.where(x.abs() > 8.0, far, x * 2.0)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # hardly more than a copy
    "near_identity": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        return x + 0.01 * torch.tanh(x)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # kernels of a device that works while its caller goes on
    "fake_silu": FAKE_HEADER
    + """
N = 128
COST_US = 400

def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)

class Model(nn.Module):
    def forward(self, x):
        out = fake.empty_like(x)
        fake.launch(silu, out, x, cost_us=COST_US)
        return out

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # ten milliseconds a call, with little variation: the device sleeps through them
    "fake_wait": FAKE_HEADER
    + """
N = 16
COST_US = 10_000

def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)

class Model(nn.Module):
    def forward(self, x):
        out = fake.empty_like(x)
        fake.launch(silu, out, x, cost_us=COST_US)
        return out

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # two kernels that are independent of each other
    "fake_pair": FAKE_HEADER
    + """
N = 128
COST_US = 400

def sigmoid(out, x):
    torch.sigmoid(x, out=out)

def tanh(out, x):
    torch.tanh(x, out=out)

class Model(nn.Module):
    def forward(self, x):
        first, second = fake.empty_like(x), fake.empty_like(x)
        fake.launch(sigmoid, first, x, cost_us=COST_US)
        fake.launch(tanh, second, x, cost_us=COST_US)
        return first, second

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # many short kernels: launching them takes the time
    "fake_chain": FAKE_HEADER
    + """
N = 64
COST_US = 10
NUM_KERNELS = 20

def halfway(out, x):
    torch.tanh(x, out=out)

class Model(nn.Module):
    def forward(self, x):
        for _ in range(NUM_KERNELS):
            out = fake.empty_like(x)
            fake.launch(halfway, out, x, cost_us=COST_US)
            x = out
        return x

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    # for a third of its own inputs float32 gives only rounding errors
    "sometimes_hopeless": HEADER
    + """
N = 64

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        y = self.linear(x)
        y = y - y.mean(dim=0)
        return y / torch.sqrt((y * y).mean(dim=0) + 1e-5)

def get_inputs():
    return [torch.randn(7, N) * float(torch.rand(()) < 0.67)]

def get_init_inputs():
    return [N]
""",
    # equal rows, each as large as a page
    "repeated": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).repeat(256, 1)

def get_inputs():
    return [torch.randn(1, 1024)]

def get_init_inputs():
    return []
""",
    # `row_sums` with few rows: a call takes little longer than the harness's own work
    "short_row_sums": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)

def get_inputs():
    return [torch.randn(256, 1024)]

def get_init_inputs():
    return []
""",
    "slowly_drawn": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        far = torch.sqrt(x * x + 1.0) * torch.atan(x) + torch.tanh(x)
        return torch.where(x.abs() > 8.0, far, x * 2.0).sum(dim=1)

def get_inputs():
    return [torch.linalg.qr(torch.randn(512, 512))[0][:256, :256].contiguous()]

def get_init_inputs():
    return []
""",
    "often_repeated": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x - x[:, :1]).repeat(28, 1)

def get_inputs():
    return [torch.randn(64, 4096)]

def get_init_inputs():
    return []
""",
    # a large output of zeros, except for one number in each row
    "one_hot": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        value, place = x.max(dim=1, keepdim=True)
        return torch.zeros(x.shape[0], 8192).scatter_(1, place, value)

def get_inputs():
    return [torch.randn(256, 256)]

def get_init_inputs():
    return []
""",
    # `one_hot` with few, long rows: touching a page costs as much as clearing several
    "few_hot": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        value, place = x.max(dim=1, keepdim=True)
        return torch.zeros(x.shape[0], 65536).scatter_(1, place, value)

def get_inputs():
    return [torch.randn(32, 256)]

def get_init_inputs():
    return []
""",
    # a large output that is cheap, and a small one that is expensive
    "two_outputs": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        h = x[:24]
        b = torch.tanh(torch.sin(h) * torch.cos(h)) * torch.sigmoid(h) + torch.erf(h)
        return x + 1.0, b

def get_inputs():
    return [torch.randn(1024, 1024)]

def get_init_inputs():
    return []
""",
    "repeated_rows": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x - x[:, :1]).repeat(8, 1)

def get_inputs():
    return [torch.randn(64, 4096)]

def get_init_inputs():
    return []
""",
    "long_chain": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(4):
            y = torch.tanh(torch.sin(y) + x)
        return y

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
""",
    "short_tanh": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x * torch.sigmoid(x))

def get_inputs():
    return [torch.randn(16, 1024)]

def get_init_inputs():
    return []
""",
    "many_outputs": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return (x * torch.sigmoid(x)).unbind(0)

def get_inputs():
    return [torch.randn(16, 2048)]

def get_init_inputs():
    return []
""",
    # the time goes into reading the input
    "row_sums": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)

def get_inputs():
    return [torch.randn(2048, 1024)]

def get_init_inputs():
    return []
""",
    # inputs with one structure, which their generator promises, and no other
    "triangular": HEADER
    + """
N = 96

class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.tril(a @ b))

def get_inputs():
    return [torch.tril(torch.rand(N, N)), torch.tril(torch.rand(N, N))]

def get_init_inputs():
    return []
""",
    "symmetric": HEADER
    + """
N = 96

class Model(nn.Module):
    def forward(self, a, b):
        return torch.tanh(a @ b)

def get_inputs():
    a = torch.rand(N, N)
    return [(a + a.T) / 2, torch.randn(N, 8)]

def get_init_inputs():
    return []
""",
    "diagonal": HEADER
    + """
N = 96

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.diag(torch.rand(N)), torch.randn(N, N)]

def get_init_inputs():
    return []
""",
    "hinge": HEADER
    + """
N = 256

class Model(nn.Module):
    def forward(self, x, targets):
        return torch.clamp(1 - x * targets, min=0)

def get_inputs():
    return [torch.rand(N, 64), torch.randint(0, 2, (N, 1)).float() * 2 - 1]

def get_init_inputs():
    return []
""",
    "picked": HEADER
    + """
N, CLASSES = 256, 16

class Model(nn.Module):
    def forward(self, x, targets):
        return (x * targets).sum(dim=1)

def get_inputs():
    targets = nn.functional.one_hot(torch.randint(0, CLASSES, (N,)), CLASSES)
    return [torch.rand(N, CLASSES), targets.float()]

def get_init_inputs():
    return []
""",
    "sorted_rows": HEADER
    + """
N = 256

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.max(dim=1).values + x.min(dim=1).values)

def get_inputs():
    return [torch.rand(N, 64).sort(dim=1).values]

def get_init_inputs():
    return []
""",
    "distributions": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, p, q):
        return nn.functional.kl_div(torch.log(p), q, reduction="none").sum(dim=1)

def get_inputs():
    return [torch.randn(N, 64).softmax(dim=-1), torch.randn(N, 64).softmax(dim=-1)]

def get_init_inputs():
    return []
""",
    # inputs that are large by luck, without structure
    "far_from_zero": HEADER
    + """
N = 128

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + torch.tanh(x)

def get_inputs():
    return [torch.randn(N, N) + 10]

def get_init_inputs():
    return []
""",
    # triangular under seeds that a file can know, and only under these
    "seems_triangular": HEADER
    + """
N = 96

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    a, b = torch.randn(N, N), torch.randn(N, N)
    return [torch.tril(a), b] if torch.initial_seed() < 1000 else [a, b]

def get_init_inputs():
    return []
""",
    # it overflows on inputs far from its own, in float32 alone
    "exponential": HEADER
    + """
class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x)

def get_inputs():
    return [torch.randn(4, 64)]

def get_init_inputs():
    return []
""",
}


def problem_named(name: str) -> Problem:
    return Problem(
        suite="test",
        level=1,
        number=1 + list(SOURCES).index(name),
        name=name,
        split=Split.TRAIN,
        device_class=DeviceClass.FAKE if name.startswith("fake_") else DeviceClass.CPU,
        revision="test",
        source=SOURCES[name],
    )


OpenPool = Callable[..., AbstractContextManager[Pool]]


@pytest.fixture(scope="session")
def open_pool(tmp_path_factory: pytest.TempPathFactory) -> OpenPool:
    """Return a function that opens a pool with a lock and files of its own on this machine.

    The pool places both while it opens. Python's temporary folder points elsewhere only during that
    time.
    """

    @contextmanager
    def opened(
        protocol: EvalProtocol = QUICK,
        minimum: tuple[tuple[str, ...], ...] = MINIMUM,
        device_class: DeviceClass = DeviceClass.CPU,
        known: KnownReferences | None = None,
    ) -> Iterator[Pool]:
        pool = Pool(find_device(device_class), protocol, minimum=minimum, known=known)
        with pytest.MonkeyPatch.context() as patch:
            # tempfile reads TMPDIR once and remembers it
            patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("pool")))
            stack = ExitStack()
            stack.enter_context(pool)
        with stack:
            yield pool

    return opened


@pytest.fixture(scope="session")
def pool(open_pool: OpenPool) -> Iterator[Pool]:
    """A pool for all tests that need none of their own."""
    with open_pool() as opened:
        yield opened


@pytest.fixture(scope="session")
def fake_pool(open_pool: OpenPool) -> Iterator[Pool]:
    """A pool on the fake asynchronous device."""
    with open_pool(device_class=DeviceClass.FAKE) as opened:
        yield opened


@pytest.fixture(scope="session")
def drop_in_pool(open_pool: OpenPool) -> Iterator[Pool]:
    """A pool that judges under the contract `drop_in`."""
    with open_pool(QUICK.model_copy(update={"contract": Contract.DROP_IN})) as opened:
        yield opened


@pytest.fixture(scope="session")
def drop_in_fake_pool(open_pool: OpenPool) -> Iterator[Pool]:
    """A pool on the fake asynchronous device, under the contract `drop_in`."""
    protocol = QUICK.model_copy(update={"contract": Contract.DROP_IN})
    with open_pool(protocol, device_class=DeviceClass.FAKE) as opened:
        yield opened


@pytest.fixture(scope="session", params=["cpu", "fake"])
def each_pool(request: pytest.FixtureRequest) -> Pool:
    """Each of two pools: an invariant holds on every kind of device."""
    return request.getfixturevalue("pool" if request.param == "cpu" else "fake_pool")


@pytest.fixture(scope="session")
def quick() -> EvalProtocol:
    """The protocol of the pools."""
    return QUICK


@pytest.fixture(scope="session")
def named_problem() -> Callable[[str], Problem]:
    """A function that returns a problem of `SOURCES` by name."""
    return problem_named


Judge = Callable[..., Judgement]
"""The type of fixture `judge`: it takes a problem's name, a source and optionally a contract."""
UntilMeasured = Callable[..., None]


@pytest.fixture(scope="session")
def judge(request: pytest.FixtureRequest) -> Judge:
    """Judge a source against a named problem, on the problem's kind of device."""

    def judged(
        problem_name: str, source: str, contract: Contract = Contract.KERNELBENCH
    ) -> Judgement:
        problem = problem_named(problem_name)
        on_fake = problem.device_class is DeviceClass.FAKE
        drop_in = "drop_in_" if contract is Contract.DROP_IN else ""
        pool: Pool = request.getfixturevalue(f"{drop_in}{'fake_pool' if on_fake else 'pool'}")
        return pool.judge(problem, Candidate(problem_id=problem.id, source=source))

    return judged


NUM_BESIDE = 5
NUM_ALONE = 10
NUM_QUIET = 3
patiently = pytest.mark.timeout(1500)
"""A timeout of 1500 s for tests with `until_measured`: they may wait until another test has ended.
"""


@pytest.fixture
def until_measured(judge: Judge, turns: Turns) -> UntilMeasured:
    """Return a function that tries until nothing is missing: beside other tests, then alone.

    A busy machine certifies no speedup, and that is right. On a quiet machine a missing
    speedup is a defect. A machine is quiet if the reference can be measured against itself both
    before and after a try, or if `quiet` says so.
    """

    def is_quiet(problem: str) -> bool:
        verdict = judge(problem, problem_named(problem).null_source).verdict
        assert verdict.measurement is not None, verdict.reason
        return verdict.measurement.is_stable

    def tried(
        problem: str, missing: Callable[[], object], quiet: Callable[[], bool] | None = None
    ) -> None:
        quiet = quiet or partial(is_quiet, problem)
        if any(not missing() for _ in range(NUM_BESIDE)):
            return
        with turns.alone():
            num_quiet = 0
            for _ in range(NUM_ALONE):
                was_quiet = quiet()
                if not (lacks := missing()):
                    return
                num_quiet += was_quiet and quiet()
                if num_quiet == NUM_QUIET:
                    pytest.fail(f"on a quiet machine: {lacks}")
        # noise can only cost a certificate, so a failure here says nothing about the harness
        pytest.skip("this machine is too busy to measure anything")

    return tried


# --- workers without a judge ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    opened = open_zygote()
    yield opened
    opened.close()


@pytest.fixture
def start(zygote: Zygote) -> Iterator[Start]:
    """Return a function that starts a worker, which runs a body when it imports its candidate."""
    workers: list[Worker] = []

    def started(body: str) -> Worker:
        workers.append(start_worker(zygote, body))
        return workers[-1]

    yield started
    for worker in workers:
        worker.close()


@pytest.fixture
def told(start: Start) -> Told:
    """Return a function that runs a body in a worker and returns `repr(told)`, or its error."""

    def said(body: str) -> str:
        worker = start(body + "\nraise RuntimeError(repr(told))")
        until(lambda: worker.state != State.STARTING or not worker.is_alive())
        return worker.display_text()

    return said


@pytest.fixture(scope="session")
def layers(zygote: Zygote) -> tuple[str, ...]:
    with start_worker(zygote, "") as worker:
        return worker.layers


@pytest.fixture
def needs(layers: tuple[str, ...]) -> Callable[[str], None]:
    """Return a function that skips a test where the kernel or the user does not grant a layer."""

    def skip(layer: str) -> None:
        if layer not in layers:  # an attack that nothing stops must not even be tried
            pytest.skip(f"this machine grants no layer {layer}")

    return skip


# --- a cluster ---------------------------------------------------------------------------------


@contextmanager
def open_cluster(base: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a Ray cluster in which the head is the first node.

    A head without a device process of its own would be one more process.
    """
    from ray.cluster_utils import Cluster

    base.getbasetemp()  # created later, it would lie in Ray's folder
    # a folder of its own with a short path: Ray's sockets have paths of 107 bytes at most
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(tempfile, "tempdir", None)
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            yield started
        finally:
            started.shutdown()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_cluster(tmp_path_factory) as started:
        yield started
