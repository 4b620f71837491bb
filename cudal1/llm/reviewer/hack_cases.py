"""The confirmed cheats that ship, for a reviewer before its run has found any of its own.

Cases that runs confirm are rows of the ledger. A line of `hack_cases.jsonl` is one case, stripped.
"""

from __future__ import annotations

import json
from pathlib import Path

from cudal1.hack_case import CaseOrigin, HackCase

FILE = Path(__file__).parent / "hack_cases.jsonl"


def shipped_cases() -> tuple[HackCase, ...]:
    """Return all shipped cases, in the file's order."""
    lines = FILE.read_text(encoding="utf-8").strip().split("\n")
    return tuple(HackCase(**json.loads(line), origin=CaseOrigin.SHIPPED) for line in lines)
