"""Compile one file of an extension: with the headers that it needs, and nvcc's two halves at once.

`torch/extension.h` is 450,000 lines. A C++ compiler parses them once, nvcc three times: its front
ends for host and device, one after the other, then the host's compiler. Most kernels need tensors
and a few operators by name, which is a fifth of that; the two front ends need not wait for each
other. What does not compile so is compiled as it was asked for, and that decides. And a source that
an earlier process of the candidate had compiled in the same way is not compiled again.

What a source means stays. Only a usual one (`Source`) is treated so: it brings no headers of its
own, and asks the preprocessor nothing that the headers left out could answer. What is left out
then is declarations that it has no word for, of PyTorch's own headers.

Run as a script by `g++` and `nvcc` beside this file, without our package or site-packages. Whatever
goes wrong in here is left to the compiler, and what that says of a line of the source is said again
where the same is to be compiled once more. Threat: none but what a candidate's own processes can do
anyway; it may as well call the compiler itself.

Long because a script of one file finds itself wherever it is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

SOURCES = (".c", ".cc", ".cpp", ".cu", ".cxx")
LANDMARKS = ("ATen/ops", "torch/all.h", "Python.h", "cuda_runtime.h")
"""One of which lies in each folder of headers that is not a candidate's own."""
FURTHER_HEADERS = re.compile(r"(?:^@|(?:^|[\s,='\"])-(?:I|i\w|-include|-pre-include|-?opt))")
"""In an option that brings headers, or options from a file."""
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(.*)$", re.MULTILINE)
ASKED = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)$", re.MULTILINE)
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
ANSWERED = re.compile(
    r"defined|\d\w*|__CUDA_ARCH__|__CUDACC__|__NVCC__|__cplusplus|__GNUC__|CUDART_VERSION"
    r"|TORCH_VERSION_\w+|USE_ROCM|NDEBUG"
)
"""What a source may ask the preprocessor, beside what it defines itself: the same either way."""
OF_PYTORCH = re.compile(r"AT_|C10|CAFFE2|D?CHECK|FATAL|PY|RECORD|THP|TORCH|(?:UN)?LIKELY|V?LOG")
"""Names that a source may not define only where nobody else has."""
NEVER_TWICE = re.compile(r"incbin|#\s*embed|__has_include|__(?:DATE|TIME|TIMESTAMP)__")
"""In a source that may become something else though it says the same."""
HIDES_WORDS = re.compile(r"##|%:|CONCAT|(?<!\w)(?:u8|[uUL])?R\"|\d'\d")
"""Names that are made of others, directives that look like none, and what hides a comment."""
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)
SPLICE = re.compile(r"\\[ \t]*\r?\n")
PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
HEARD = (*PATHS, "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables that compilers listen to."""
EVERY_OPERATOR = (
    "ATen/Functions.h", "ATen/NativeFunctions.h", "ATen/core/ivalue.h", "ATen/core/jit_type.h",
)  # fmt: skip
"""What `ATen/ATen.h` includes that declares all operators, or values of TorchScript."""
ALWAYS = ("torch/types.h", "torch/version.h", "ATen/Config.h", "ATen/Parallel.h")
"""The last three for what they define."""
OF_PYTHON = ("math.h", "stdlib.h")
"""What `Python.h` includes that changes which functions a source calls: of `float`, or `double`."""
TORCHSCRIPT = ("ATen/TensorIndexing.h", "ATen/core/IListRef.h")
"""What tensors bring in that declares values of TorchScript: instantiating their templates is more
than a half of what compilers do with the rest."""
OF_LISTS = re.compile(r"^inline [^\n]*\(ITensorListRef \w+\) \{\n.*?^\}\n", re.M | re.S)
FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
LITERALS = "#include <torch/csrc/api/include/torch/detail/TensorDataContainer.h>\n"
"""What one of them takes, `tensor`."""
OPERATOR = re.compile(r"^#include <ATen/ops/(\w+)\.h>\n", re.MULTILINE)
VARIABLES = "torch/csrc/autograd/variable.h"
NO_GRADIENTS = """#pragma once
#include <ATen/core/Tensor.h>
namespace torch::autograd { inline at::Tensor make_variable(at::Tensor x, bool) { return x; } }
"""
"""In its place: all that factories need, `torch::empty` and its like, where nobody asks for
`requires_grad`. The graph of gradients brings values of TorchScript."""
NEEDS_MORE = re.compile(
    r"requires_grad|autograd|Variable|IValue|index_put_"
    r"|\b(?:ITensorListRef|IListRef|List|Dict|Slice|TensorIndex|indexing)\b"
    r"|\b(?:_?sum_to|(?:are|is)_expandable|check_defined|expand_(?:(?:in|out)place|size)"
    r"|infer(?:_size|_dense|Expand)|(?:has|assert_no|get|assert)_\w*overlap)"
)
"""The first means something else without gradients. The last are functions of tensors that come
with indexing, so that an own one of that name might be called instead. Others are declared nowhere
else, and a compiler that found it out would have worked for nothing."""
LISTS = re.compile(r"ListRef|List<")
BINDINGS = ("torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h")
FOR_PYTHON = re.compile(r"\bpy::|pybind11|\bPY_?[A-Z]|\bPy[A-Z_]|\bTHP")
REGISTERS = "TORCH_LIBRARY"
LOCATED = re.compile(r"^.*(?::\d+:(?:\d+:)?|\(\d+\):) (?:fatal )?error\b.*$", re.MULTILINE)
"""What a compiler says of a line."""
NOT_ITS_FAULT = re.compile(
    r"signal|killed|terminated|memory|bad_alloc|no space|quota|too many open|temporarily"
    r"|internal compiler|input/output|bus error|timed? ?out",
    re.IGNORECASE,
)
"""Somewhere in what is said where the machine may be to blame."""
HALVES = ("gcc", "cudafe++", "gcc", "cicc", "ptxas", "fatbinary", "rm", "gcc")
"""What nvcc runs for one architecture: the host's half, the device's half, both together."""
NUM_HOST, NUM_HALVES = 2, 7
WITHOUT_COLLECTING = ("--param", "ggc-min-heapsize=2000000")
"""kB: looking for garbage is a sixth of what the host's compiler does, and there is memory."""
DRY = "#$ "
Done = subprocess.CompletedProcess[bytes]


def main(compiler: str, arguments: list[str]) -> int:
    """Compile; the exit status of what compiled it last."""
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
        if done.returncode == 0:
            sys.stderr.buffer.write(done.stdout)
            source.note(done)
            return 0
    shutil.rmtree(source.folder, ignore_errors=True)
    done = said([compiler, *arguments])
    sys.stderr.buffer.write(done.stdout)
    with contextlib.suppress(Exception):
        source.note(done)
    return done.returncode


@dataclass(frozen=True)
class Source:
    """A file that is compiled, with no headers but PyTorch's, CUDA's, Python's and the system's."""

    arguments: list[str]
    path: Path
    text: str
    torch: str
    """PyTorch's folder of headers, as it is given."""
    output: str

    @classmethod
    def of(cls, arguments: list[str]) -> Source | None:
        """None for any other command.

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
        """Beside the output, and it stays: ninja notes which headers a file was made from."""
        return Path(f"{self.output}.headers")

    # --- once is enough ---------------------------------------------------------------------------

    @property
    def _note(self) -> Path:
        return Path(f"{self.output}.made")

    def known(self) -> int | None:
        """The exit status of this command for this text, if that was found before.

        If it was good, the output is new again: who writes a file and has it compiled writes it in
        each of its processes, and ninja goes by dates: the object that an earlier process handed
        over would be older than its source. If not, what the compiler said is said again.

        Raises:
            OSError, ValueError, KeyError: there is no note that can be read.
        """
        note = json.loads(self._note.read_text())
        if note["made_of"] != self._made_of():
            return None
        if status := int(note["status"]):
            sys.stderr.write(note["said"])
            return status
        os.utime(self.output)
        if told := after("-MF", self.arguments):  # ninja takes it away when it has read it
            Path(told).write_text(note["dependencies"])
        return 0

    def forget(self) -> None:
        """An object that is made now is another one."""
        self._note.unlink(missing_ok=True)

    def note(self, done: Done) -> None:
        """Remember what came of it, unless the machine may be to blame."""
        words, told = os.fsdecode(done.stdout), after("-MF", self.arguments)
        is_good = done.returncode == 0
        if not is_good and (NOT_ITS_FAULT.search(words) or not LOCATED.search(words)):
            return
        note = {
            "made_of": self._made_of(), "status": done.returncode, "said": "" if is_good else words,
            "dependencies": Path(told).read_text() if told and is_good else "",
        }  # fmt: skip
        self._note.write_text(json.dumps(note))

    def _made_of(self) -> str:
        heard = [os.environ.get(name, "") for name in HEARD]
        said = json.dumps([str(Path.cwd()), self.arguments, heard, self.text])
        return sha256(said.encode()).hexdigest()

    # --- fewer headers ----------------------------------------------------------------------------

    def compiled(self, compiler: str) -> Done:
        """Compile it with fewer headers; all that was said is in `stdout`."""
        for name, content in fewer_headers(self.text, Path(self.torch)).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        place = self.arguments.index(self.torch) - 1
        first = ["-DAT_PER_OPERATOR_HEADERS", "-isystem", str(self.folder)]
        arguments = [*self.arguments[:place], *first, *self.arguments[place:]]
        if Path(compiler).name != "nvcc":
            return said([compiler, *WITHOUT_COLLECTING, *arguments])
        with tempfile.TemporaryDirectory() as scratch:
            module = sha256(os.fsencode(Path(self.output).absolute()))
            module.update(self.text.encode(errors="surrogateescape"))
            name = f"_{module.hexdigest()[:16]}_"
            steps = Steps.of(compiler, arguments, Path(scratch), module=name)
            return said([compiler, *arguments]) if steps is None else steps.run()


def is_usual(text: str, folder: Path) -> bool:
    """Whether a text needs PyTorch, no headers beside it, and always says the same."""
    text = bare(text)
    included = [name.partition("//")[0].strip() for name in INCLUDE.findall(text)]
    if not any(re.match(r"[<\"](?:torch|ATen)/", name) for name in included):
        return False
    for name in included:
        quoted = re.fullmatch(r'"([^"]+)"', name)
        if (quoted and (folder / quoted[1]).exists()) or not (quoted or name[:1] == "<"):
            return False
    own = set(DEFINED.findall(text))
    asked = {word for line in ASKED.findall(text) for word in re.findall(r"\w+", line)}
    if not all(ANSWERED.fullmatch(word) for word in asked - own):
        return False
    if any(OF_PYTORCH.match(word) for word in asked & own) or HIDES_WORDS.search(text):
        return False
    return NEVER_TWICE.search(text) is None


def bare(text: str) -> str:
    """A text as the preprocessor sees it: lines that were split are one, comments are spaces."""
    return COMMENT.sub(lambda found: found[1] or " ", SPLICE.sub("", text))


def fewer_headers(text: str, torch: Path) -> dict[str, str]:
    """By name, headers to be found before PyTorch's when this text is compiled.

    Operators have a header each, and those come that the text has a word for.

    Raises:
        OSError: a header of PyTorch's is not where it was.
    """
    text = bare(text)
    words = set(re.findall(r"\w+", text))
    operators = words & {path.stem for path in (torch / "ATen/ops").iterdir()}
    declared = {name: torch / f"ATen/ops/{name}_ops.h" for name in operators}
    there = {name: path.read_text() for name, path in declared.items() if path.exists()}
    with_lists = {name for name, header in there.items() if LISTS.search(header)}
    left_out, headers = EVERY_OPERATOR, dict[str, str]()
    if not NEEDS_MORE.search(text) and not any(
        re.search(rf"\b{name}\s*\(", text) for name in with_lists
    ):
        guards = OF_LISTS.sub("", _without(TORCHSCRIPT, torch / "ATen/DeviceGuard.h"))
        factories = _factories(words, (torch / FACTORIES).read_text())
        headers = {"ATen/DeviceGuard.h": guards, FACTORIES: factories, VARIABLES: NO_GRADIENTS}
        operators -= with_lists
        left_out += TORCHSCRIPT
    tensors = _without(left_out, torch / "ATen/ATen.h") + _including(
        [f"ATen/ops/{name}.h" for name in sorted(operators)]
    )
    everything = "#pragma once\n" + _including(ALWAYS)
    for_python = everything + _including(OF_PYTHON)
    headers |= {
        "ATen/ATen.h": tensors, "torch/all.h": everything, "torch/torch.h": for_python,
        "torch/extension.h": for_python + _including(BINDINGS if FOR_PYTHON.search(text) else ()),
    }  # fmt: skip
    if not any(word.startswith(REGISTERS) for word in words):
        headers["torch/library.h"] = "#pragma once\n"
    return headers


def _factories(words: set[str], text: str) -> str:
    """The header of factories, with those that there is a word for."""
    called = words | {word.removesuffix("_symint") for word in words}
    if "tensor" not in words:
        text = text.replace(LITERALS, "")
    text = FACTORY.sub(lambda found: found[0] if found[1] in words else "", text)
    return OPERATOR.sub(lambda found: found[0] if found[1] in called else "", text)


def _including(names: Sequence[str]) -> str:
    return "".join(f"#include <{name}>\n" for name in names)


def _without(names: Sequence[str], header: Path) -> str:
    lines = header.read_text().splitlines(keepends=True)
    left_out = {f"#include <{name}>" for name in names}
    return "".join(line for line in lines if line.strip() not in left_out)


def after(option: str, arguments: Sequence[str]) -> str:
    """The value of an option that is a word of its own; empty where it is not given."""
    return next((value for name, value in pairwise(arguments) if name == option), "")


def said(command: list[str] | str, environment: dict[str, str] | None = None) -> Done:
    """Run something; all it says is in `stdout`."""
    return subprocess.run(
        command, shell=isinstance(command, str), env=environment, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


# --- nvcc -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """The commands that nvcc would run, as it says itself, in an order of ours.

    Both halves name one module, whose identifier nvcc lets the host's half make; it is made before.
    """

    commands: list[str]
    environment: dict[str, str]

    @classmethod
    def of(cls, nvcc: str, arguments: list[str], scratch: Path, *, module: str) -> Steps | None:
        """None where nvcc would do something else than compile a file for one architecture."""
        dependencies = after("-MF", arguments)
        kept = [each for each in arguments if each not in {"-MD", "-MF", dependencies}]
        told = said([nvcc, *kept, "--dryrun"], {**os.environ, "TMPDIR": str(scratch)})
        lines = [
            line.removeprefix(DRY) for line in os.fsdecode(told.stdout).splitlines()
            if line.startswith(DRY)
        ]  # fmt: skip
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
        """Both halves at once, then what needs both; the first failure decides."""
        device = list[Done]()
        others = self.commands[NUM_HOST : NUM_HALVES - 1]  # what is removed lies in our own folder
        thread = threading.Thread(target=lambda: device.append(self._in_turn(others)))
        thread.start()
        host = self._in_turn(self.commands[:NUM_HOST])
        thread.join()
        if not device:  # it could not even be begun
            return Done([], 1, host.stdout)
        for done in (host, *device):
            if done.returncode:
                return done
        last = self._in_turn(self.commands[NUM_HALVES:])
        last.stdout = b"".join(each.stdout for each in (host, *device, last))
        return last

    def _in_turn(self, commands: list[str]) -> Done:
        """Until one fails; what all of them said."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
