"""The command line: a verdict on one's own module, the null test, questions to the ledger.

Each command is a module, imported when the command is given: `--help` lists the commands without
importing them. Everything heavy is imported inside commands. Exit codes: docs/command-line.md.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cudal1 import interrupt
from cudal1.cli.terminal import answer
from cudal1.cli.terminal.ending import (
    CANNOT,
    INTERRUPTED,
    exit_code,
    naming_extras,
    printable,
    report_our_own_failure,
    say,
)

COMMANDS = {
    "judge": "Judge a candidate, or a file of them: correct, and by how much certified faster?",
    "capture": "Write problem files from the calls that a program of your own makes to a module.",
    "optimize": "Find a faster version of a module, prove it, and keep it beside the module.",
    "check": "Judge kept versions again: still correct, and as fast as proven?",
    "null-test": "Judge every reference against itself: nothing may be certified faster.",
    "report": "Sum verdicts up, in Markdown: speedups by level, null test, outcomes, precision, "
    "cheats.",
    "doctor": "What stands around a candidate on this machine, what is missing, and what to do "
    "about it.",
    "screen": "Read a source without running it. Notes are advice: they decide no verdict.",
    "sql": "Ask the ledger. Reading never disturbs a running pipeline.",
    "publish": "Publish a run's facts to a folder or a bucket that machines share.",
    "show": "Show a candidate or a problem: source, verdicts, timing, lineage, difference, curve.",
    "hacks": "What the reviewer has vetoed, and your word on it.",
    "providers": "Who is asked for candidates, and ready entries for more.",
    "serve": "Judge for other people's programs, over HTTP.",
    "training": "What training takes of a GPU's memory, and ready settings for larger policies.",
}
"""Lines of `cudal1 --help`, one for each command; a command's own help begins with the same
words."""


class Waiting(TyperCommand):
    """A command, known by its name and first line; its module is imported when it is given."""

    def load(self) -> TyperCommand | TyperGroup:
        """Return the command itself, which its module holds under the command's name."""
        assert self.name is not None
        module = self.name.replace("-", "_")
        found = getattr(import_module(f"cudal1.cli.{module}"), module)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command(self.name)(function)
        command: Any = typer.main.get_command(found)
        command.name = self.name
        _prepare(command, f"cudal1 {self.name}")
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of the command itself, so that the command itself is invoked."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


def _prepare(command: Any, called: str) -> None:
    """Let a command refuse empty arguments, keep to its answer, and name missing extras.

    Libraries' prints during the command go to standard error. Subcommands are prepared in the same
    way.
    """
    for name, each in getattr(command, "commands", {}).items():
        _prepare(each, f"{called} {name}")
    for parameter in command.params:
        _refuse_empty(parameter)
    run = command.callback
    if run is None:
        return

    @wraps(run)
    def alone(**given: Any) -> Any:
        answer.keep_to_the_answer()
        with naming_extras(called):
            return run(**given)

    command.callback = alone


def _refuse_empty(parameter: Any) -> None:
    """Let a parameter refuse an empty text, which an unset variable of a shell leaves.

    No parameter means anything by an empty text, and a path would become the current folder.
    """
    process = parameter.process_value
    remedy = "give a value"
    if parameter.param_type_name == "option":
        remedy += ", or leave the option out"

    def process_filled(context: Any, value: Any) -> Any:
        if "" in (value if isinstance(value, list | tuple) else [value]):
            raise typer.BadParameter(f"it is empty; {remedy}", context, parameter)
        return process(context, value)

    parameter.process_value = process_filled


class OneLine(TyperGroup):
    """A group of commands, in which a wrong option is one line, like every other mistake."""

    def __init__(self, **given: Any) -> None:
        waiting = {name: Waiting(name, callback=None, help=line) for name, line in COMMANDS.items()}
        super().__init__(**given | {"commands": waiting | given["commands"]})

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> None:
        """Run, and end the process with the command's exit code."""
        sys.excepthook = report_our_own_failure
        answer.take_streams()
        interrupt.listen()
        _hush_warnings()
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra) or 0
        except typer.TyperException as error:
            said, where = error.format_message(), getattr(error, "ctx", None)
            if said:  # without a command the help was shown instead
                said = said.replace("Value error, ", "").rstrip(".")
                say(f"{said}; see {where.command_path if where else 'cudal1'} --help")
            code = error.exit_code
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit as error:  # commands raise typer.Exit: this is other code's
            if _is_about_completion(prog_name, args):  # which ends so
                raise
            why = error.__context__ or error
            say(f"a failure of cudal1's own: {type(why).__name__}: {why}")
            code = CANNOT
        sys.exit(exit_code(code))


def _is_about_completion(program: str | None, args: Sequence[str] | None) -> bool:
    """Return whether a shell asks for completions, or a person for the shell's part of them."""
    variable = f"_{(program or 'cudal1').replace('-', '_').upper()}_COMPLETE"
    first = next(iter(sys.argv[1:] if args is None else args), "")
    return variable in os.environ or first.startswith(("--show-completion", "--install-completion"))


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        answer.answer(f"cudal1 {version('cudal1')}")
        raise typer.Exit(0)


def _hush_warnings() -> None:
    """Hide the libraries' warnings, in processes that Python starts for us too.

    The warnings are for authors of code that calls a library. `python -W` shows them, a line
    each.
    """
    warnings.formatwarning = lambda said, kind, *_: f"{kind.__name__}: {printable(str(said))}\n"
    if not sys.warnoptions:
        sys.warnoptions.append("ignore")
        warnings.simplefilter("ignore")


app = typer.Typer(cls=OneLine, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def cudal1(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version"),
    ] = False,
) -> None:
    """Train language models to write faster GPU code, and prove that the code is faster."""
