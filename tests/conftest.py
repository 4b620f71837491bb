"""Fixtures that several folders share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import Project, make_project


@pytest.fixture
def fresh_project(tmp_path: Path) -> Project:
    """A project in which nothing has run."""
    return make_project(tmp_path)
