"""Fixtures that several folders share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import surroundings
from tests.project import Project, make_project
from tests.turns import Turns

# properties are tried on the same examples everywhere; a busy machine may take its time
settings.register_profile(
    "cudal1",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cudal1")

# as in stages: threads that wait must sleep, not spin; set before torch is loaded
for name, value in {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}.items():
    os.environ.setdefault(name, value)

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # files that tests leave stay
# device locks are files there: a judge or another test process on this machine has its own folder
own = tempfile.TemporaryDirectory(prefix="cudal1-", ignore_cleanup_errors=True)
surroundings.enter(Path(own.name))


@pytest.fixture
def fresh_project(tmp_path: Path) -> Project:
    """Make a project in which nothing has run."""
    return make_project(tmp_path)


HERE = Path(__file__)
TURNS = Turns(door=HERE, room=HERE.with_name("turns.py"))  # any two files that all can open


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Run no test while another one must run alone; the wait does not count as the test's time."""
    with TURNS.together():
        return (yield)


@pytest.fixture(scope="session")
def turns() -> Turns:
    """Return the turns of the test processes of this checkout."""
    return TURNS
