"""List pieces of `get_inputs`: layouts, dtypes, and results that are no list of tensors."""

from __future__ import annotations

from typing import Any

from benchmarks.fuzz.pieces import Expected, Parts, Piece

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER
PAIR = "given[0] + 2 * given[1]"


def _inputs(
    name: str, inputs: str, expected: Expected = EITHER, mix: str = "given[0]", **parts: Any
) -> Piece:
    return Piece(f"inputs: {name}", "inputs", Parts(inputs=inputs, mix=mix, **parts), expected)


DTYPES = {
    "float64": EITHER,
    "float16": EITHER,
    "bfloat16": EITHER,
    "int64": EITHER,
    "int32": EITHER,
    "int16": EITHER,
    "int8": EITHER,
    "uint8": EITHER,
    "bool": EITHER,
    "complex64": REFUSED,
    "complex32": REFUSED,
    "float8_e4m3fn": REFUSED,
    "uint16": REFUSED,
    "uint32": REFUSED,
    "uint64": REFUSED,
}
INPUTS = [
    _inputs("transposed", "[torch.randn(16, 8).t()]", JUDGED),
    _inputs(
        "channels last", "[torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]", JUDGED
    ),
    _inputs("permuted", "[torch.randn(4, 2, 16).permute(1, 0, 2)]", JUDGED),
    _inputs("expanded", "[torch.randn(8, 1).expand(8, 16)]", JUDGED),
    _inputs("windows", "[torch.randn(40).as_strided((8, 16), (1, 2))]", JUDGED),
    _inputs("a slice", "[torch.randn(8, 40)[:, 3:35:2]]", JUDGED),
    _inputs(
        "of one storage", "(lambda t: [t[:, :16], t[:, 16:]])(torch.randn(8, 32))", JUDGED, PAIR
    ),
    _inputs(
        "that overlap", "(lambda t: [t[:, :16], t[:, 8:24]])(torch.randn(8, 24))", JUDGED, PAIR
    ),
    _inputs("the same tensor twice", "[torch.randn(8, 16)] * 2", JUDGED, PAIR),
    _inputs(
        "a tensor and its transpose", "(lambda t: [t, t.t()])(torch.randn(8, 8))", JUDGED, PAIR
    ),
    _inputs("that want gradients", "[torch.randn(8, 16, requires_grad=True)]", JUDGED),
    _inputs("that are no leaves", "[torch.randn(8, 16, requires_grad=True) * 2]", JUDGED),
    _inputs("a Parameter", "[nn.Parameter(torch.randn(8, 16))]", JUDGED),
    _inputs("a scalar tensor", "[torch.randn(())]"),
    _inputs("one element", "[torch.randn(1, 1)]"),
    _inputs("empty", "[torch.randn(0, 16)]", REFUSED),
    _inputs("one of two empty", "[torch.randn(8, 16), torch.randn(0)]", REFUSED),
    _inputs("large", "[torch.randn(1 << 18)]", JUDGED),
    _inputs("of 12 dimensions", "[torch.randn(*[2] * 9, 1, 1, 1)]", JUDGED),
    _inputs("forty of them", "[torch.randn(8, 16) for _ in range(40)]", EITHER, "sum(given)"),
    *(
        _inputs(name, f"[(torch.randn(8, 16) * 9).to(torch.{name})]", expected)
        for name, expected in DTYPES.items()
    ),
    _inputs("sparse", "[torch.randn(8, 16).to_sparse()]", REFUSED, "given[0].to_dense()"),
    _inputs("CSR", "[torch.eye(8).to_sparse_csr()]", REFUSED, "given[0].to_dense()"),
    _inputs(
        "quantized",
        "[torch.quantize_per_tensor(torch.randn(8, 16), .1, 0, torch.qint8)]",
        REFUSED,
        "given[0].dequantize()",
    ),
    _inputs(
        "nested",
        "[torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])]",
        REFUSED,
        "given[0].to_padded_tensor(0.0)",
    ),
    _inputs("meta", "[torch.randn(8, 16, device='meta')]"),
    _inputs("a subclass", "[torch.randn(8, 16).as_subclass(type('T', (torch.Tensor,), {}))]"),
    _inputs(
        "conjugated", "[torch.randn(8, 16, dtype=torch.complex64).conj()]", REFUSED, "given[0].real"
    ),
    _inputs("negative views", "[torch._neg_view(torch.randn(8, 16))]"),
    _inputs(
        "inference tensors", "[x]", draw="with torch.inference_mode():\n    x = torch.randn(8, 16)"
    ),
    _inputs("with a number", "[torch.randn(8, 16), 2.5]", mix="given[0] * given[1]"),
    _inputs("with None", "[torch.randn(8, 16), None]"),
    _inputs("with a string", "[torch.randn(8, 16), 'mode']"),
    _inputs("with a list", "[torch.randn(8, 16), [torch.randn(8, 16)]]", mix="given[0]"),
    _inputs("with an object", "[torch.randn(8, 16), object()]"),
    _inputs("none", "[]", REFUSED, "torch.ones(8, 16)"),
    _inputs("None", "None", REFUSED),
    _inputs("a bare tensor", "torch.randn(8, 16)"),
    _inputs("a tuple", "(torch.randn(8, 16),)", JUDGED),
    _inputs("a generator", "(torch.randn(8, 16) for _ in range(1))"),
    _inputs("a dictionary", "{'given': torch.randn(8, 16)}"),
    _inputs("the same values always", "[torch.ones(8, 16)]", REFUSED),
    _inputs("a seed of their own", "[torch.randn(8, 16)]", REFUSED, draw="torch.manual_seed(5)"),
    _inputs("a shape that grows", "[torch.randn(8 + _draws, 16)]", REFUSED),
    _inputs("a shape that is drawn", "[torch.randn(8, int(torch.randint(2, 99, ())))]"),
    _inputs("a number that grows", "[torch.randn(8, 16)] * _draws", REFUSED, "sum(given)"),
    _inputs(
        "a dtype that alternates",
        "[torch.randn(8, 16).to((torch.float32, torch.float64)[_draws % 2])]",
    ),
    _inputs("NaN", "[torch.randn(8, 16) * float('nan')]", REFUSED),
    _inputs("with an infinity", "[x]", EITHER, draw="x = torch.randn(8, 16)\nx[0, 0] = 1e400"),
    _inputs(
        "from numpy",
        "[torch.from_numpy(n.random.randn(8, 16).astype('f4'))]",
        JUDGED,
        top="import numpy as n",
    ),
    _inputs(
        "from random",
        "[torch.tensor([[random.random()] * 16 for _ in range(8)])]",
        JUDGED,
        top="import random",
    ),
    _inputs("from the system", "[torch.tensor(list(os.urandom(128)), dtype=torch.float32)]"),
    _inputs(
        "a frozen buffer",
        "[torch.frombuffer(b, dtype=torch.float32)]",
        REFUSED,
        draw="b = bytes(range(64))",
    ),
    _inputs("huge", "[torch.randn(1 << 50)]", REFUSED),
    _inputs("a cached tensor", "[_kept]", REFUSED, top="_kept = torch.randn(8, 16)"),
    _inputs("drawn in place", "[_kept.normal_()]", top="_kept = torch.randn(8, 16)"),
]
