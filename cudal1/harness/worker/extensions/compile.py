"""Compile one file of an extension: with the headers that it needs, and nvcc's two halves at once.

`torch/extension.h` is 450,000 lines. A C++ compiler parses them once, nvcc three times: its front
ends for host and device, one after the other, then the host's compiler. Most kernels need tensors
and a few operators by name, which is a half of that; the two front ends need not wait for each
other. What does not compile so is compiled as it was asked for, and that decides. And a file that
says what it said when an earlier process of the candidate compiled it is not compiled again.

What a source means stays: its headers are PyTorch's own, and of those some are left out. Whatever
they declare is either what the source used, or missing, and then all of them come.

Run as a script by `g++` and `nvcc` beside this file, without our package or site-packages. Threat:
none but what a candidate's own processes can do anyway; it may as well call the compiler itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

SOURCES = (".c", ".cc", ".cpp", ".cu", ".cxx")
EVERY_OPERATOR = (
    "ATen/Functions.h", "ATen/NativeFunctions.h", "ATen/core/ivalue.h", "ATen/core/jit_type.h",
)  # fmt: skip
"""What `ATen/ATen.h` includes that declares all operators, or values of TorchScript."""
REGISTERS = "TORCH_LIBRARY"
BINDINGS = ("torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h")
PYTHON = frozenset({"PYBIND11_MODULE", "py", "pybind11"})
HALVES = ("gcc", "cudafe++", "gcc", "cicc", "ptxas", "fatbinary", "rm", "gcc")
"""What nvcc runs for one architecture: the host's half, the device's half, both together."""
NUM_HOST, NUM_HALVES = 2, 7
WITHOUT_COLLECTING = " --param ggc-min-heapsize=2000000"
"""kB: looking for garbage is a sixth of what the host's compiler does, and there is memory."""
DRY = "#$ "


def main(compiler: str, arguments: list[str]) -> int:
    """Compile; the exit status of what compiled it last."""
    if was_made(arguments):
        return 0
    if lean := with_fewer_headers(arguments):
        with tempfile.TemporaryDirectory() as scratch:
            done = compiled(compiler, lean, Path(scratch))
        if done.returncode == 0:
            sys.stderr.buffer.write(done.stdout)
            note_made(arguments)
            return 0
        shutil.rmtree(_folder(arguments), ignore_errors=True)
    status = subprocess.call([compiler, *arguments])
    if status == 0:
        note_made(arguments)
    return status


# --- once is enough ------------------------------------------------------------------------------


def was_made(arguments: Sequence[str]) -> bool:
    """Whether this command has made its output of files that say the same; then it is new again.

    Who writes a file and has it compiled writes it in each of its processes, and ninja goes by
    dates: the object that an earlier process handed over would be older than its source.
    """
    output = after("-o", arguments)
    try:
        known = json.loads(Path(f"{output}.made").read_text())
        if known["arguments"] != arguments or known["contents"] != _contents(known["contents"]):
            return False
        Path(after("-MF", arguments)).write_text(known["dependencies"])  # ninja reads it, too
        os.utime(output)
    except (OSError, ValueError, KeyError):
        return False
    return True


def note_made(arguments: Sequence[str]) -> None:
    """Remember what an output was made of: those files that a candidate can change."""
    output = after("-o", arguments)
    with contextlib.suppress(OSError, IndexError):
        dependencies = Path(after("-MF", arguments)).read_text()
        files = dependencies.replace("\\\n", " ").partition(":")[2].split()
        own = [each for each in files if Path(each).absolute().is_relative_to(Path.home())]
        note = {"arguments": arguments, "dependencies": dependencies, "contents": _contents(own)}
        Path(f"{output}.made").write_text(json.dumps(note))


def _contents(files: Iterable[str]) -> dict[str, str]:
    return {each: sha256(Path(each).read_bytes()).hexdigest() for each in files}


# --- fewer headers --------------------------------------------------------------------------------


def with_fewer_headers(arguments: Sequence[str]) -> list[str]:
    """The same command with a folder of headers before PyTorch's; empty where there is no need.

    The folder lies beside the output and stays: ninja notes which headers a file was made from.
    """
    source, torch = _source(arguments), _torch_headers(arguments)
    if source is None or torch is None or not after("-o", arguments):
        return []
    try:
        text = source.read_text(errors="replace")
        if not re.search(r"#\s*include\s*[<\"](?:torch|ATen)/", text):
            return []
        folder = _folder(arguments)
        for name, content in fewer_headers(text, torch).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    except OSError:
        return []
    return [f"-I{folder}", "-DAT_PER_OPERATOR_HEADERS", *arguments]


def fewer_headers(text: str, torch: Path) -> dict[str, str]:
    """By name, headers to be found before PyTorch's when this source is compiled.

    Operators have a header each, and those come that the source has a word for.
    """
    words = set(re.findall(r"\w+", text))
    operators = [word for word in sorted(words) if (torch / f"ATen/ops/{word}.h").is_file()]
    tensors = _without(EVERY_OPERATOR, torch / "ATen/ATen.h")
    tensors += "".join(f"#include <ATen/ops/{name}.h>\n" for name in operators)
    everything = "#pragma once\n#include <torch/types.h>\n"
    python = "".join(f"#include <{name}>\n" for name in BINDINGS) if words & PYTHON else ""
    headers = {
        "ATen/ATen.h": tensors, "torch/all.h": everything, "torch/torch.h": everything,
        "torch/extension.h": everything + python,
    }  # fmt: skip
    if not any(word.startswith(REGISTERS) for word in words):
        headers["torch/library.h"] = "#pragma once\n"
    return headers


def _without(names: Sequence[str], header: Path) -> str:
    lines = header.read_text().splitlines(keepends=True)
    left_out = {f"#include <{name}>" for name in names}
    return "".join(line for line in lines if line.strip() not in left_out)


def _folder(arguments: Sequence[str]) -> Path:
    return Path(f"{after('-o', arguments)}.headers")


def _source(arguments: Sequence[str]) -> Path | None:
    """The one file that is compiled; None where something else is done."""
    named = [Path(each) for each in arguments if each.endswith(SOURCES) and each[0] != "-"]
    return named[0] if "-c" in arguments and len(named) == 1 else None


def after(option: str, arguments: Sequence[str]) -> str:
    """The value of an option that is a word of its own; empty where it is not given."""
    return next((value for name, value in pairwise(arguments) if name == option), "")


def _torch_headers(arguments: Sequence[str]) -> Path | None:
    folders = [each.removeprefix("-I").removeprefix("-isystem") for each in arguments]
    return next((Path(each) for each in folders if Path(each, "ATen/ops").is_dir()), None)


# --- compiling ------------------------------------------------------------------------------------


def compiled(
    compiler: str, arguments: list[str], scratch: Path
) -> subprocess.CompletedProcess[bytes]:
    """Compile, and say what the compiler said, errors among it, in `stdout`."""
    if Path(compiler).name == "nvcc" and (steps := Steps.of(compiler, arguments, scratch)):
        return steps.run()
    return said([compiler, *arguments])


def said(
    command: list[str] | str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run something; all it says is in `stdout`."""
    return subprocess.run(
        command, shell=isinstance(command, str), env=environment, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


class Steps:
    """The commands that nvcc would run, as it says itself, in an order of ours.

    Both halves name one module, whose identifier nvcc lets the host's half make; it is made before.
    """

    def __init__(self, commands: list[str], environment: dict[str, str]) -> None:
        self.commands = commands
        self.environment = environment

    @classmethod
    def of(cls, nvcc: str, arguments: list[str], scratch: Path) -> Steps | None:
        """None where nvcc would do something else than compile a file for one architecture."""
        dependencies = after("-MF", arguments)
        kept = [each for each in arguments if each not in {"-MD", "-MF", dependencies}]
        told = said([nvcc, *kept, "--dryrun"], {**os.environ, "TMPDIR": str(scratch)})
        lines = [
            line.removeprefix(DRY) for line in told.stdout.decode().splitlines()
            if line.startswith(DRY)
        ]  # fmt: skip
        environment, commands = dict(os.environ), list[str]()
        for line in lines:
            setting = re.match(r"([A-Za-z_]\w*)=(.*)", line)
            if setting and not commands:
                environment[setting[1]] = setting[2].strip()
            else:
                commands.append(line)
        module = re.search(r'--module_id_file_name "([^"]+)"', " ".join(commands))
        if told.returncode or module is None or tuple(map(_program, commands)) != HALVES:
            return None
        output = after("-o", arguments)
        Path(module[1]).write_text(f"_{sha256(output.encode()).hexdigest()[:16]}_")
        commands[1] = commands[1].replace("--gen_module_id_file ", "")
        commands[-1] += WITHOUT_COLLECTING
        if dependencies:
            commands[0] += f' -MD -MF "{dependencies}" -MT "{output}"'
        return cls(commands, environment)

    def run(self) -> subprocess.CompletedProcess[bytes]:
        """Both halves at once, then what needs both; the first failure decides."""
        device = list[subprocess.CompletedProcess[bytes]]()
        others = self.commands[NUM_HOST : NUM_HALVES - 1]  # what is removed lies in our own folder
        thread = threading.Thread(target=lambda: device.append(self._in_turn(others)))
        thread.start()
        host = self._in_turn(self.commands[:NUM_HOST])
        thread.join()
        for done in (host, *device):
            if done.returncode:
                return done
        last = self._in_turn(self.commands[NUM_HALVES:])
        last.stdout = host.stdout + last.stdout
        return last

    def _in_turn(self, commands: list[str]) -> subprocess.CompletedProcess[bytes]:
        """Until one fails; what all of them said."""
        done = subprocess.CompletedProcess[bytes](commands, 0, b"")
        for command in commands:
            heard = done.stdout
            done = said(command, self.environment)
            done.stdout = heard + done.stdout
            if done.returncode:
                break
        return done


def _program(command: str) -> str:
    return Path(command.split(maxsplit=1)[0].strip('"')).name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
