"""The recognition of copies: a candidate that is the reference's program, names aside.

Both sources are brought into one form (`cudal1.program.form`). Any difference that the form keeps
makes two sources different, though they may do the same.

Threat: a slow candidate that is taken for a copy earns 1.00, so the parts that a form leaves out
must run nothing. A fast one gains nothing by it, and a copy in disguise is measured as any
candidate is. A source without a form is no copy. Other files of a source must be the reference's
own.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache

from cudal1.files import source_files
from cudal1.files.python_file import parsed
from cudal1.program.form import Form, form_of

REFERENCE, CANDIDATE = "Model", "ModelNew"
INERT = sys.stdlib_module_names | {"torch", "numpy"}
"""Packages that change nothing when they are imported."""
NUM_CACHED = 64
"""Number of references with a cached form: many candidates are compared with each."""


def is_copy(source: str, reference: str) -> bool:
    """Return whether `ModelNew` of one source is `Model` of the other, names aside."""
    (source, beside), (reference, beside_reference) = map(source_files.cut, (source, reference))
    if beside != beside_reference:
        return False
    mine, theirs = _form(source, CANDIDATE), _form_of_reference(reference)
    if mine is None or theirs is None:
        return False
    return mine.program == theirs.program and mine.packages <= theirs.packages | INERT


@lru_cache(NUM_CACHED)
def _form_of_reference(source: str) -> Form | None:
    return _form(source, REFERENCE)


def _form(source: str, entry: str) -> Form | None:
    tree = parsed(source)
    return None if tree is None else form_of(tree, entry, kept=_of_pytorch())


@cache
def _of_pytorch() -> frozenset[str]:
    """Return the names that PyTorch's modules and tensors define: they have a meaning already."""
    import torch

    return frozenset(dir(torch.nn.Module)) | frozenset(dir(torch.Tensor))
