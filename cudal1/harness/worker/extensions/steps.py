"""Run what nvcc would run for one file, with its two halves at once.

nvcc runs its front ends for host and device one after the other, though neither need wait.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HALVES = ("gcc", "cudafe++", "gcc", "cicc", "ptxas", "fatbinary", "rm", "gcc")
"""Programs that nvcc runs for one architecture: the host's half, the device's half, both
together."""
NUM_HOST, NUM_HALVES = 2, 7
WITHOUT_COLLECTING = ("--param", "ggc-min-heapsize=2000000")
"""Options that let the host's compiler keep garbage; the size is in kB. Looking for garbage is a
sixth of what that compiler does, and there is memory."""
DRY = "#$ "
Done = subprocess.CompletedProcess[bytes]


def after(option: str, arguments: Sequence[str]) -> str:
    """Return the value of an option that is a word of its own; empty where it is not given."""
    return next((value for name, value in pairwise(arguments) if name == option), "")


def said(command: list[str] | str, environment: dict[str, str] | None = None) -> Done:
    """Run a command; all its output is in `stdout`."""
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@dataclass(frozen=True)
class Steps:
    """The commands that nvcc would run, as nvcc lists them, in an order of ours.

    Both halves name one module. nvcc lets the host's half make the module's identifier; here it is
    made before.
    """

    commands: list[str]
    environment: dict[str, str]

    @classmethod
    def of(cls, nvcc: str, arguments: list[str], scratch: Path, *, module: str) -> Steps | None:
        """Return the steps, or None where nvcc would not compile a file for one architecture."""
        dependencies = after("-MF", arguments)
        kept = [each for each in arguments if each not in {"-MD", "-MF", dependencies}]
        told = said([nvcc, *kept, "--dryrun"], {**os.environ, "TMPDIR": str(scratch)})
        lines = [
            line.removeprefix(DRY)
            for line in os.fsdecode(told.stdout).splitlines()
            if line.startswith(DRY)
        ]
        environment, commands = dict(os.environ), list[str]()
        for line in lines:
            setting = re.match(r"([A-Za-z_]\w*)=(.*)", line)
            if setting and not commands:
                environment[setting[1]] = setting[2].strip()
            else:
                commands.append(line)
        named = re.search(r'--module_id_file_name "([^"]+)"', " ".join(commands))
        if told.returncode or named is None or tuple(map(_program, commands)) != HALVES:
            return None
        Path(named[1]).write_text(module)
        commands[1] = commands[1].replace("--gen_module_id_file ", "")
        commands[-1] = " ".join([commands[-1], *WITHOUT_COLLECTING])
        if dependencies:
            output = shlex.quote(after("-o", arguments))
            commands[0] += f" -MD -MF {shlex.quote(dependencies)} -MT {output}"
        return cls(commands, environment)

    def run(self) -> Done:
        """Run both halves at once, then what needs both; the first failure decides."""
        device = list[Done]()
        others = self.commands[NUM_HOST : NUM_HALVES - 1]  # without `rm`: the folder is ours
        thread = threading.Thread(target=lambda: device.append(self._in_turn(others)))
        thread.start()
        host = self._in_turn(self.commands[:NUM_HOST])
        thread.join()
        if not device:  # the device's half could not be begun
            return Done([], 1, host.stdout)
        for done in (host, *device):
            if done.returncode:
                return done
        last = self._in_turn(self.commands[NUM_HALVES:])
        last.stdout = b"".join(each.stdout for each in (host, *device, last))
        return last

    def _in_turn(self, commands: list[str]) -> Done:
        """Run commands until one fails; return the last one, with the output of all."""
        done = Done(commands, 0, b"")
        for command in commands:
            heard = done.stdout
            done = said(command, self.environment)
            done.stdout = heard + done.stdout
            if done.returncode:
                break
        return done


def _program(command: str) -> str:
    return Path(command.split(maxsplit=1)[0].strip('"')).name
