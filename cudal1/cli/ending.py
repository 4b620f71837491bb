"""How a command ends: its exit code, and one line when it could not do what it was asked."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NoReturn

import typer

GOOD, BAD, CANNOT, INTERRUPTED = 0, 1, 2, 130
"""Good news; bad news; no news, because something else is wrong; Ctrl-C. docs/command-line.md."""


def say(line: str) -> None:
    """One line to standard error."""
    typer.echo(printable(line), err=True)


def fail(line: str) -> NoReturn:
    """End: nothing could be said about what was asked."""
    say(line)
    raise typer.Exit(CANNOT)


def printable(text: str) -> str:
    """One line without control characters: a candidate's words must not steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def report_our_own_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> NoReturn:
    """A bug of ours says nothing about the candidate, so it must not end as Python would, with 1.

    Set as `sys.excepthook`, from which Python takes an exit code like from anywhere else.
    """
    sys.__excepthook__(kind, error, trace)
    raise SystemExit(CANNOT)
