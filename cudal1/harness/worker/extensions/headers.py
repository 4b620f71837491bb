"""Choose the headers of PyTorch's that a source of an extension needs, where fewer do.

The source keeps its meaning. Only a usual source is treated so: it asks the preprocessor nothing
that the headers left out could answer. Then only declarations that the source has no word for are
left out, of PyTorch's own headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(.*)$", re.MULTILINE)
ASKED = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)$", re.MULTILINE)
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
ANSWERED = re.compile(
    r"defined|\d\w*|__CUDA_ARCH__|__CUDACC__|__NVCC__|__cplusplus|__GNUC__|CUDART_VERSION"
    r"|TORCH_VERSION_\w+|USE_ROCM|NDEBUG"
)
"""Words that a source may ask the preprocessor about, beside those that it defines itself; their
answers are the same either way."""
OF_PYTORCH = re.compile(r"AT_|C10|CAFFE2|D?CHECK|FATAL|PY|RECORD|THP|TORCH|(?:UN)?LIKELY|V?LOG")
"""Beginnings of PyTorch's names, which a source may not define on condition that they are
undefined."""
NEVER_TWICE = re.compile(r"incbin|#\s*embed|__has_include|__(?:DATE|TIME|TIMESTAMP)__")
"""Words of a source that may become something else though its text is the same."""
HIDES_WORDS = re.compile(r"##|%:|CONCAT|(?<!\w)(?:u8|[uUL])?R\"|\d'\d")
"""Names that are made of others, directives that look like none, and what hides a comment."""
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)
SPLICE = re.compile(r"\\[ \t]*\r?\n")
EVERY_OPERATOR = (
    "ATen/Functions.h",
    "ATen/NativeFunctions.h",
    "ATen/core/ivalue.h",
    "ATen/core/jit_type.h",
)
"""Headers that `ATen/ATen.h` includes and that declare all operators, or values of TorchScript."""
ALWAYS = ("torch/types.h", "torch/version.h", "ATen/Config.h", "ATen/Parallel.h")
"""Headers for every source; the last three are there for what they define."""
OF_PYTHON = ("math.h", "stdlib.h")
"""Headers that `Python.h` includes and that change which functions a source calls: those of
`float`, or those of `double`."""
TORCHSCRIPT = ("ATen/TensorIndexing.h", "ATen/core/IListRef.h")
"""Headers that tensors bring in and that declare values of TorchScript. Instantiating their
templates is more than half of what compilers do with the rest."""
OF_LISTS = re.compile(r"^inline [^\n]*\(ITensorListRef \w+\) \{\n.*?^\}\n", re.M | re.S)
FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
LITERALS = "#include <torch/csrc/api/include/torch/detail/TensorDataContainer.h>\n"
"""The include for the argument of one factory, `tensor`."""
OPERATOR = re.compile(r"^#include <ATen/ops/(\w+)\.h>\n", re.MULTILINE)
VARIABLES = "torch/csrc/autograd/variable.h"
NO_GRADIENTS = """#pragma once
#include <ATen/core/Tensor.h>
namespace torch::autograd { inline at::Tensor make_variable(at::Tensor x, bool) { return x; } }
"""
"""Content that replaces `VARIABLES`. It is all that factories need, `torch::empty` and its like, in
a source that does not ask for `requires_grad`. The graph of gradients brings values of
TorchScript."""
NEEDS_MORE = re.compile(
    r"requires_grad|autograd|Variable|IValue|index_put_"
    r"|\b(?:ITensorListRef|IListRef|List|Dict|Slice|TensorIndex|indexing)\b"
    r"|\b(?:_?sum_to|(?:are|is)_expandable|check_defined|expand_(?:(?:in|out)place|size)"
    r"|infer(?:_size|_dense|Expand)|(?:has|assert_no|get|assert)_\w*overlap)"
)
"""Words of a source that needs all headers of tensors. The first means something else without
gradients. The last are functions of tensors that come with indexing, so that a source's own
function of that name might be called instead. The other words are declared nowhere else, and a
compiler that found it out would have worked for nothing."""
LISTS = re.compile(r"ListRef|List<")
BINDINGS = ("torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h")
FOR_PYTHON = re.compile(r"\bpy::|pybind11|\bPY_?[A-Z]|\bPy[A-Z_]|\bTHP")
REGISTERS = "TORCH_LIBRARY"


def is_usual(text: str, folder: Path) -> bool:
    """Return whether a text needs PyTorch, no headers in `folder`, and always says the same."""
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
    """Return a text as the preprocessor sees it: split lines are joined, comments are spaces."""
    return COMMENT.sub(lambda found: found[1] or " ", SPLICE.sub("", text))


def fewer_headers(text: str, torch: Path) -> dict[str, str]:
    """Return headers by name, to be found before PyTorch's when this text is compiled.

    Operators have a header each. The result includes those of operators that the text has a word
    for.

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
        "ATen/ATen.h": tensors,
        "torch/all.h": everything,
        "torch/torch.h": for_python,
        "torch/extension.h": for_python + _including(BINDINGS if FOR_PYTHON.search(text) else ()),
    }
    if not any(word.startswith(REGISTERS) for word in words):
        headers["torch/library.h"] = "#pragma once\n"
    return headers


def _factories(words: set[str], text: str) -> str:
    """Return the header of factories, with only those that the text has a word for."""
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
