"""Tests that a technique is named where a source has it, and not where it nearly has it."""

from __future__ import annotations

import ast
import json
import time
from importlib.resources import files

import pytest

from cudal1.extract.extract import extract
from cudal1.problem import DeviceClass
from cudal1.program.technique import MEANINGS, Technique
from cudal1.program.techniques import techniques
from cudal1.suite.loader import load_suite
from tests.harness.corpus import HONEST, cases
from tests.program.tagged import PAIRS, PLAIN, cuda, module, triton

SAID = {
    "inline CUDA": Technique.CUDA,
    "Triton": Technique.TRITON,
    "CUDA graph": Technique.CUDA_GRAPH,
    "torch.compile": Technique.TORCH_COMPILE,
    "bfloat16 arithmetic": Technique.HALF_PRECISION,
    "float16 arithmetic": Technique.HALF_PRECISION,
    "work left on a side stream": Technique.STREAMS,
}
"""Techniques that the authors of the shipped recordings name."""
TWINS = {
    "bf16": "half_precision in_place",
    "compiled": "torch_compile",
    "cupy_raw_kernel": "cuda",
    "folded_weights": "folded_weights in_place layout precomputed",
    "helper_threads": "",
    "in_place_inside": "in_place",
    "inline_cpp": "cpp",
    "inline_cuda": "cuda",
    "loaded_cpp": "cpp",
    "loaded_cuda": "cuda shared_memory",
    "much_memory": "",
    "nvrtc_kernel": "cuda",
    "own_buffers": "buffer_reuse",
    "symmetric_half": "",
    "tf32": "tf32 in_place",
    "triton_silu": "triton",
    "workspace": "buffer_reuse",
}
"""Techniques of honest twins beside a reference that does nothing, as people read them."""
NAMES = [f"{number:02d}-{pair.technique}" for number, pair in enumerate(PAIRS)]


def found(source: str, reference: str = PLAIN) -> set[str]:
    return {each.value for each in techniques(source, reference)}


def test_each_technique_has_a_meaning_and_a_pair():
    assert set(MEANINGS) == set(Technique) == {pair.technique for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_a_source_with_a_technique_has_its_tag(pair):
    assert pair.technique in found(pair.has, pair.reference)


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_a_source_that_nearly_has_a_technique_has_no_tag(pair):
    compile(pair.nearly, "nearly", "exec")
    assert pair.technique not in found(pair.nearly, pair.reference)


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_a_source_in_a_comment_or_in_a_text_has_no_tag(pair):
    commented = "".join(f"    # {line}\n" for line in pair.has.splitlines())
    assert (
        found(module("return torch.relu(x)", before=f"UNUSED = {pair.has!r}\n{commented}")) == set()
    )


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_a_class_that_nothing_needs_earns_no_tag(pair):
    unused = pair.has.replace("ModelNew", "Unused")
    kept = [line for line in unused.splitlines() if not line.startswith("torch.backends")]
    assert found(module("return torch.relu(x)", before="\n".join(kept))) == set()


def test_a_technique_of_the_reference_is_none_of_the_candidate():
    both = module("return torch.relu_(x + 1)")
    assert found(both, both.replace("ModelNew", "Model")) == set()


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.relu(x)\nreturn x.relu_()",
        "if False:\n    return x.relu_()\nreturn torch.relu(x)",
        "if self.never:\n    return x.relu_()\nreturn torch.relu(x)",
        "try:\n    return torch.relu(x)\nexcept RuntimeError:\n    return x.relu_()",
        "'x.relu_()'\nreturn torch.relu(x)",
    ],
)
def test_code_that_cannot_run_earns_no_tag(forward):
    assert found(module(forward, "self.never = False")) == set()


def test_a_method_that_is_called_earns_tags_and_one_that_is_not_earns_none():
    method = "\n    def other(self, x):\n        return x.relu_()\n"
    assert found(module("return self.other(x)") + method) == {"in_place"}
    assert found(module("return torch.relu(x)") + method) == set()


def test_a_kernel_that_nothing_launches_earns_no_tag():
    unused = "__global__ void other(float* y) { __shared__ float s[1]; y[0] = __expf(s[0]); }"
    assert found(cuda(head=unused)) == {"cuda"}
    assert found(cuda(head="#if 0\n__shared__ float s;\n#endif\n")) == {"cuda"}


def test_a_kernel_that_is_built_from_parts_is_read():
    source = cuda("y[0] = __expf(x[0]);")
    parts = source.replace("SOURCE = ", "HEAD = '#define N 4\\n'\nBODY = ").replace(
        "cuda_sources=SOURCE", "cuda_sources=[HEAD + BODY.replace('a', 'a')]"
    )
    assert parts != source
    assert {"cuda", "fast_math"} <= found(parts)


def test_a_fallback_beside_a_kernel_counts_against_no_fusion():
    ours = "return ours.run(x)"
    kernel = cuda("y[0] = fmaxf(x[0] * 2 + 1, 0);")
    chosen = kernel.replace(
        ours, f"if x.is_cuda:\n            {ours}\n        return torch.relu(x * 2 + 1)"
    )
    reference = "import torch\nclass Model:\n    def forward(self, x): return torch.relu(x * 2 + 1)"
    assert "fusion" in found(kernel, reference)
    assert "fusion" in found(chosen, reference)


def test_an_input_that_is_written_over_by_a_kernels_result_is_no_kernel():
    kernel = cuda("y[0] = fmaxf(x[0] * 2 + 1, 0);")
    chosen = kernel.replace(
        "        return ours.run(x)\n",
        "        if x.is_cuda:\n            x = ours.run(x)\n"
        "        else:\n            x = torch.relu(x * 2 + 1)\n        return x\n",
    )
    reference = "import torch\nclass Model:\n    def forward(self, x): return torch.relu(x * 2 + 1)"
    assert chosen != kernel
    assert "fusion" in found(chosen, reference)


def test_a_module_that_is_called_as_an_operator_is_counted_once():
    kernel = cuda("y[0] = fmaxf(x[0], 0);")
    reference = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n"
    reference += (
        "        self.relu = torch.nn.ReLU()\n    def forward(self, x): return self.relu(x)\n"
    )
    assert found(kernel, reference) == {"cuda"}


def test_operators_inside_a_triton_kernel_are_no_operators_of_pytorch():
    reference = "import torch\nclass Model:\n    def forward(self, x): return torch.relu(x * 2 + 1)"
    assert "fusion" in found(triton("tl.store(y, tl.maximum(tl.load(x) * 2 + 1, 0))"), reference)


@pytest.mark.parametrize("name", TWINS)
def test_honest_twins_have_the_tags_that_people_read(name):
    (case,) = [each for each in (*cases("honest_cuda"), *HONEST) if each.name == name]
    nothing = "class Model:\n    def forward(self, *inputs): return inputs"
    assert found(case.source, nothing) == set(TWINS[name].split())


def test_shipped_recordings_have_the_techniques_that_their_authors_name():
    problems = {(p.level, p.number): p.source for p in load_suite(DeviceClass.CPU)}
    kinds = {"cuda", "triton", "cuda_graph", "torch_compile", "half_precision", "streams"}
    num_named = 0
    for path in (files("cudal1.llm") / "recordings").iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            source = extract(said["text"]).source
            reference = problems.get((said["level"], said["number"]))
            if source is None or reference is None:
                continue
            named = {SAID[said["technique"]].value} if said["technique"] in SAID else set()
            num_named += len(named)
            assert found(source, reference) & kinds == named, (said["name"], said["technique"])
    assert num_named >= 30


@pytest.mark.parametrize(
    "source",
    [
        "",
        "class ModelNew(",
        "x = 1",
        "ModelNew = 3",
        "class ModelNew: pass\x00",
        "class ModelNew:\n    def forward(self): return " + "-" * 5000 + "1",
        "class ModelNew:\n    def forward(self):\n        return x" + ".a" * 3000,
    ],
)
def test_a_source_that_cannot_be_read_has_no_technique(source):
    assert techniques(source, PLAIN) == ()
    assert techniques(module("return x.relu_()"), source) == (Technique.IN_PLACE,)


NESTED = "self.a" + " + self.a" * 4000
HOSTILE = {
    "newlines": cuda(head="#if 0" + "\n" * 60_000),
    "comments": cuda(head="/*" * 30_000),
    "quotes": cuda(head='"' * 60_000),
    "parentheses": cuda(head="f(" * 30_000),
    "braces": cuda(head="{" * 60_000),
    "spaces": cuda("float4" + " " * 60_000 + "x;"),
    "names": module("\n".join(f"self.x{i} = self.x{i + 1}" for i in range(3000))),
    "texts": module(
        "return ours.run(x)",
        before="from torch.utils.cpp_extension import load_inline\n"
        + "\n".join(f"A{i} = A{i + 1} + A{i + 1}" for i in range(3000))
        + "\nours = load_inline('a', cuda_sources=A0)",
    ),
    "conditions": module("\n".join(f"if x.a{i}: x = x + {i}" for i in range(3000)) + "\nreturn x"),
    "functions": module(
        "return f0(x)", before="\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(3000))
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_source_made_to_exhaust_its_reader_is_read_soon(name):
    began = time.process_time()
    techniques(HOSTILE[name], PLAIN)
    took = time.process_time() - began
    ast.parse(HOSTILE[name])
    assert took < 300 * (time.process_time() - began - took) + 5  # a quadratic reader takes minutes
