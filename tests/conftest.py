"""Fixtures that several folders share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.project import Project, make_project

# properties are tried on the same examples everywhere; a busy machine may take its time
settings.register_profile("cudal1", deadline=None, derandomize=True, database=None)
settings.load_profile("cudal1")


if "PYTEST_XDIST_WORKER" in os.environ:
    # devices are locked by files there; who runs beside us has a device of its own
    own = tempfile.TemporaryDirectory(prefix="cudal1-", ignore_cleanup_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = own.name


@pytest.fixture
def fresh_project(tmp_path: Path) -> Project:
    """A project in which nothing has run."""
    return make_project(tmp_path)
