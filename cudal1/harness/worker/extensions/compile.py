"""Compile one file of an extension, with only the headers that it needs and nvcc's halves at once.

`torch/extension.h` is 450,000 lines. A C++ compiler parses them once, nvcc three times: its front
ends for host and device, one after the other, then the host's compiler. Most kernels need tensors
and a few operators by name, which is a fifth of that (`headers`). The two front ends need not wait
for each other (`steps`). What does not compile so is compiled as it was asked for, and that
decides, unless it must fail in the same lines (`undeclared`). A source that an earlier process of
the candidate compiled in the same way is not compiled again.

Whatever goes wrong in here is left to the compiler. What the compiler says of a line of the source
is said again where the same is to be compiled once more. Threat: none but what a candidate's own
processes can do anyway. A candidate may as well call the compiler itself.
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
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from . import undeclared  # relative: the package has two names (`__main__`)
from .headers import bare, fewer_headers, is_usual
from .siblings import Siblings
from .steps import WITHOUT_COLLECTING, Done, Steps, after, said

NVCC = "nvcc"
SOURCES = (".c", ".cc", ".cpp", ".cu", ".cxx")
LANDMARKS = ("ATen/ops", "torch/all.h", "Python.h", "cuda_runtime.h")
"""Files and folders, one of which lies in each folder of headers that is not a candidate's own."""
FURTHER_HEADERS = re.compile(r"(?:^@|(?:^|[\s,='\"])-(?:I|i\w|-include|-pre-include|-?opt))")
"""An option that brings headers, or options from a file."""
PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
EXTENSIONS_DIR, COPIES = "TORCH_EXTENSIONS_DIR", "elsewhere"
"""The environment variable that names PyTorch's folder of extensions; a folder in it for objects of
sources that compile into others."""
HEARD = (*PATHS, "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Environment variables that compilers read."""
LOCATED = re.compile(r"^.*(?::\d+:(?:\d+:)?|\(\d+\):) (?:fatal )?error\b.*$", re.MULTILINE)
"""A compiler's message about a line."""
NOT_ITS_FAULT = re.compile(
    r"signal|killed|terminated|memory|bad_alloc|no space|quota|too many open|temporarily"
    r"|internal compiler|input/output|bus error|timed? ?out",
    re.IGNORECASE,
)
"""Words in a compiler's output when the machine may be to blame."""


def main(compiler: str, arguments: list[str]) -> int:
    """Compile; return the exit status of the last compilation, here or in an earlier process.

    A file that does not compile costs the extension, so its other files are given up.
    """
    siblings = Siblings.of(arguments)
    if siblings is not None:
        siblings.watch()
    status = _compiled(compiler, arguments)
    if status and siblings is not None:
        siblings.fail()
    return status


def _compiled(compiler: str, arguments: list[str]) -> int:
    source = None
    with contextlib.suppress(Exception):
        source = Source.of(arguments)
    if source is None:
        return subprocess.call([compiler, *arguments])
    with contextlib.suppress(Exception):
        known = source.known()
        if known is not None:
            return known
    with contextlib.suppress(Exception):
        source.forget()
        done = source.compiled(compiler)
        if done.returncode == 0 or source.fails_anyway(done, compiler):
            sys.stderr.buffer.write(done.stdout)
            source.note(done)
            return done.returncode
    shutil.rmtree(source.folder, ignore_errors=True)
    done = said([compiler, *arguments])
    sys.stderr.buffer.write(done.stdout)
    with contextlib.suppress(Exception):
        source.note(done)
    return done.returncode


@dataclass(frozen=True)
class Source:
    """A file to compile, with no headers but PyTorch's, CUDA's, Python's and the system's."""

    arguments: list[str]
    path: Path
    text: str
    torch: str
    """PyTorch's folder of headers, as it is given."""
    output: str

    @classmethod
    def of(cls, arguments: list[str]) -> Source | None:
        """Return the source that a command compiles, or None for any other command.

        Raises:
            OSError: the file cannot be read.
        """
        named = [Path(each) for each in arguments if each.endswith(SOURCES) and each[0] != "-"]
        folders = [value for name, value in pairwise(arguments) if name == "-isystem"]
        torch = next((each for each in folders if Path(each, "ATen/ops").is_dir()), None)
        output = after("-o", arguments)
        if "-c" not in arguments or len(named) != 1 or not output or torch is None:
            return None
        others = [each for each in arguments if each != "-isystem"]
        if any(FURTHER_HEADERS.search(each) for each in others):
            return None
        if not all(any(Path(each, name).exists() for name in LANDMARKS) for each in folders):
            return None
        text = named[0].read_text(errors="surrogateescape")
        if not is_usual(text, named[0].parent):
            return None
        return cls(arguments, named[0], text, torch, output)

    @property
    def folder(self) -> Path:
        """The folder of headers, beside the output.

        The folder stays: ninja notes which headers a file was made from.
        """
        return Path(f"{self.output}.headers")

    # --- once is enough ---------------------------------------------------------------------------

    @property
    def _place(self) -> Path:
        """The path of the object that later processes find; the note lies beside it.

        It is where the object is wanted. A source that compiles into another folder than PyTorch's
        (`build_directory`) has a copy in PyTorch's: only that folder is handed over.
        """
        wanted, folder = Path(self.output).absolute(), os.environ.get(EXTENSIONS_DIR)
        if folder is None or wanted.is_relative_to(folder):
            return wanted
        return Path(folder, COPIES, self._made_of(), wanted.name)

    @property
    def _note(self) -> Path:
        return Path(f"{self._place}.made")

    def known(self) -> int | None:
        """Return the exit status of this command for this text, if an earlier process found it.

        After a success the output gets a new date. A source that writes a file and compiles it
        writes it in each of its processes, and ninja goes by dates. The object that an earlier
        process handed over would be older than its source. After a failure the compiler's output is
        written again.

        Raises:
            OSError, ValueError, KeyError: there is no note that can be read.
        """
        note = json.loads(self._note.read_text())
        if note["made_of"] != self._made_of():
            return None
        if status := int(note["status"]):
            sys.stderr.write(note["said"])
            return status
        if (kept := self._place) == Path(self.output).absolute():
            os.utime(kept)
        else:
            shutil.copyfile(kept, self.output)
        if told := after("-MF", self.arguments):  # ninja removes the file when it has read it
            Path(told).write_text(note["dependencies"])
        return 0

    def forget(self) -> None:
        """Remove the note: an object that is made after this is another one."""
        self._note.unlink(missing_ok=True)

    def note(self, done: Done) -> None:
        """Note the result of a compilation, unless the machine may be to blame for a failure."""
        words, told = os.fsdecode(done.stdout), after("-MF", self.arguments)
        is_good = done.returncode == 0
        if not is_good and (NOT_ITS_FAULT.search(words) or not LOCATED.search(words)):
            return
        if (kept := self._place) != Path(self.output).absolute():
            kept.parent.mkdir(parents=True, exist_ok=True)
            if is_good:
                shutil.copyfile(self.output, kept)
        note = {
            "made_of": self._made_of(),
            "status": done.returncode,
            "said": "" if is_good else words,
            "dependencies": Path(told).read_text() if told and is_good else "",
        }
        self._note.write_text(json.dumps(note))

    def _made_of(self) -> str:
        heard = [os.environ.get(name, "") for name in HEARD]
        said = json.dumps([str(Path.cwd()), self.arguments, heard, self.text])
        return sha256(said.encode()).hexdigest()

    # --- fewer headers ----------------------------------------------------------------------------

    def compiled(self, compiler: str) -> Done:
        """Compile the source with fewer headers; all output is in `stdout`."""
        for name, content in fewer_headers(self.text, Path(self.torch)).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        place = self.arguments.index(self.torch) - 1
        first = ["-DAT_PER_OPERATOR_HEADERS", "-isystem", str(self.folder)]
        arguments = [*self.arguments[:place], *first, *self.arguments[place:]]
        if Path(compiler).name != NVCC:
            return said([compiler, *WITHOUT_COLLECTING, *arguments])
        with tempfile.TemporaryDirectory() as scratch:
            module = sha256(os.fsencode(Path(self.output).absolute()))
            module.update(self.text.encode(errors="surrogateescape"))
            name = f"_{module.hexdigest()[:16]}_"
            steps = Steps.of(compiler, arguments, Path(scratch), module=name)
            return said([compiler, *arguments]) if steps is None else steps.run()

    def fails_anyway(self, done: Done, compiler: str) -> bool:
        """Return whether what failed with fewer headers fails in the same lines with all of them.

        nvcc is not asked: its front ends preprocess a file twice, and differently.
        """
        if Path(compiler).name == NVCC or done.returncode < 0:
            return False
        errors = LOCATED.findall(os.fsdecode(done.stdout))
        names, path = undeclared.names(errors, str(self.path)), str(self.path)
        is_sure = bool(names) and undeclared.are_undeclared(
            names, compiler, self.arguments, path, bare(self.text)
        )
        if is_sure:
            shutil.rmtree(self.folder, ignore_errors=True)
        return is_sure
