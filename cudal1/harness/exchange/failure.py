"""Define the exceptions with which a candidate leaves the gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.verdict import HackFlag, Status

if TYPE_CHECKING:
    from cudal1.harness.inputs.draws import Draw


@dataclass
class Failure(Exception):
    """The first gate that a candidate failed, and the reason; raising it ends the gates."""

    status: Status
    reason: str
    flags: tuple[HackFlag, ...] = ()


class NotKept(Exception):
    """Wrong outputs that may have been right before later calls of the burst on `draws`."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        super().__init__()
        self.draws = draws
