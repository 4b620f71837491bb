"""The ways a command ends: its exit code, and one line when it could not do what it was asked."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

import typer

from cudal1.cli.terminal import answer
from cudal1.settings import extras

GOOD, BAD, CANNOT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
"""Exit codes: good news; bad news; no news, because something else is wrong; Ctrl-C; news that was
not read.

See docs/command-line.md."""


def say(line: str) -> None:
    """Write one line to standard error."""
    typer.echo(printable(line), err=True)


def fail(line: str) -> NoReturn:
    """End the command with `CANNOT`: nothing could be said about what was asked."""
    say(line)
    raise typer.Exit(CANNOT)


@contextmanager
def naming_extras(command: str) -> Generator[None]:
    """End the command with one line where it needs an extra that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        remedy = extras.remedy(error.name or "")
        if remedy is None:
            raise
        fail(f"{command} {remedy}")


def printable(text: str) -> str:
    """Return one line without control characters: a candidate's words must not steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def exit_code(code: int) -> int:
    """Return the code that the process ends with, when the command ended with `code`.

    An answer that could not be written counts as no answer, whatever it was.
    """
    if code == INTERRUPTED:
        say("interrupted")
        return INTERRUPTED
    error = answer.failure()
    if error is None:
        return code
    if answer.is_unread(error):
        return UNREAD
    say(f"standard output: cannot be written ({error.strerror})")
    return CANNOT


def report_our_own_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> NoReturn:
    """End with `CANNOT` after a bug of ours.

    A bug says nothing about the candidate, so it must not end as Python would, with 1. This
    function is set as `sys.excepthook`, from which Python takes an exit code like from anywhere
    else.
    """
    sys.__excepthook__(kind, error, trace)
    said = traceback.format_exception_only(kind, error)[0]  # notes follow
    say(f"a failure of cudal1's own, which says nothing of what was asked: {said}")
    raise SystemExit(CANNOT)
