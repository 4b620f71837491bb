"""Tell people of a worker's weights or of its failure; what it tells never decides anything."""

from __future__ import annotations

import traceback
from pathlib import Path

from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import SOURCE_NAME, State, Word
from cudal1.harness.worker import builds


def tell(control: memoryview, words: memoryview, text: str) -> None:
    """Write a text for people into the control memory."""
    shown = text.encode("utf-8", "replace")[: wire.TEXT_BYTES]
    control[wire.TEXT_OFFSET : wire.TEXT_OFFSET + len(shown)] = shown
    words[Word.TEXT_LENGTH] = len(shown)


def report(control: memoryview, words: memoryview, state: State, text: str) -> None:
    """Say that this process has failed, and why."""
    tell(control, words, text)
    words[Word.STATE] = state


def described(error: BaseException) -> str:
    """Return what was raised, and at which line of the source."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).name == SOURCE_NAME]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{builds.described(error)}{where}"
