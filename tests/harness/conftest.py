"""One open pool for all harness tests, tiny problems, and a quick protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cudal1.candidate import Candidate
from cudal1.harness import Judgement, Pool, find_device
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol, PrecisionClass

QUICK = EvalProtocol(
    correctness_stages=(3, 16, 32),
    precision=PrecisionClass.STRICT,
    timing=True,
    burst_us=2000,
    max_burst_calls=32,
    ring_bytes=32 << 20,
    min_quads=9,
    max_quads=15,
    alpha=0.01,
    claim_levels=(1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0),
    dead_zone=1.02,
    num_buckets=7,
    max_bucket_variance=0.005,
    confirm_above=3.0,
    confirm_within=0.1,
    slow_factor=1000.0,
    start_timeout_s=20.0,
    call_timeout_s=2.0,
    memory_bytes=1 << 30,
    seed=7,
)

HEADER = "import torch\nimport torch.nn as nn\n\n"

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
}


def problem_named(name: str) -> Problem:
    return Problem(
        suite="test", level=1, number=1 + list(SOURCES).index(name), name=name, split=Split.TRAIN,
        device_class=DeviceClass.CPU, revision="test", source=SOURCES[name],
    )  # fmt: skip


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Timed judging; waits while another pipeline on this machine judges."""
    with Pool(find_device(DeviceClass.CPU), QUICK, wait_s=280) as opened:
        yield opened


Judge = Callable[[str, str], Judgement]


@pytest.fixture(scope="session")
def judge(pool: Pool) -> Judge:
    """Judge a source against a named problem."""

    def judged(problem_name: str, source: str) -> Judgement:
        problem = problem_named(problem_name)
        return pool.judge(problem, Candidate(problem_id=problem.id, source=source))

    return judged
