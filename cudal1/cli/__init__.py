"""The command line: a verdict on one's own module, the null test, questions to the ledger.

One module a command. Everything heavy is imported inside commands, so that `--help` is quick. Exit
codes: docs/command-line.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from cudal1.cli import doctor, hacks, judge, null_test, providers, report, screen, sql
from cudal1.cli.ending import INTERRUPTED, report_our_own_failure, say


class OneLine(TyperGroup):
    """A wrong option or argument is one line, like every other mistake."""

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None,
        complete_var: str | None = None, standalone_mode: bool = True,
        windows_expand_args: bool = True, **extra: Any,
    ) -> None:  # fmt: skip
        """Run, and end the process with the command's exit code."""
        sys.excepthook = report_our_own_failure
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra) or 0
        except typer.TyperException as error:
            said, where = error.format_message(), getattr(error, "ctx", None)
            if said:  # without a command the help was shown instead
                said = said.replace("Value error, ", "").rstrip(".")
                say(f"{said}; see {where.command_path if where else 'cudal1'} --help")
            code = error.exit_code
        if code == INTERRUPTED:
            say("interrupted")
        sys.exit(code)


app = typer.Typer(
    cls=OneLine, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command("judge")(judge.judge)
app.command("null-test")(null_test.null_test)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.command("screen")(screen.screen)
app.command("sql")(sql.sql)
app.add_typer(hacks.hacks, name="hacks")
app.add_typer(providers.providers, name="providers")


@app.callback()
def cudal1() -> None:
    """Train language models to write faster GPU code, and prove that the code is faster."""
