"""Parse what a benchmark is asked for; refuse an empty text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


class Parser(argparse.ArgumentParser):
    """A parser that refuses an empty text, which an unset variable of a shell leaves.

    No argument means anything by it, and a path would become the current folder.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.register("type", None, _text)
        self.register("type", Path, _path)


def _text(said: str) -> str:
    if not said:
        raise argparse.ArgumentTypeError("it is empty; give a value, or leave it out")
    return said


def _path(said: str) -> Path:
    return Path(_text(said))
