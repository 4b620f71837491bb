"""Names of items in params.yaml, which become names of stages, files and policies."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

ITEM_NAME = r"^[a-z0-9][a-z0-9_-]*$"
ItemName = Annotated[str, StringConstraints(pattern=ITEM_NAME)]
"""A name that DVC, file names and a shell take without quoting."""
