"""An id that two sources share if they are the same program in other words.

Names, comments, docstrings, layout and definitions that `ModelNew` does not need do not count; nor
do comments and blanks in strings of several lines that are no Python: they hold kernels. Everything
else counts. The id says which answers are copies; no verdict depends on it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from functools import lru_cache
from typing import Final

from cudal1.files import source_files
from cudal1.files.python_file import as_read, parsed
from cudal1.program.form import Form, form_of
from cudal1.record import content_id

_ENTRY: Final = "ModelNew"
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_KEPT: Final = frozenset({"forward", "training"})
"""Attributes of a module with a meaning for PyTorch. Any other that a source sets itself is a name
of its own: a false copy costs an answer its reward at worst, and this room does without PyTorch."""
NUM_CACHED = 1024
"""Number of sources with an id that is known: a step asks for each several times."""


@lru_cache(NUM_CACHED)
def program_id(source: str) -> str:
    """Return the id of the program in a candidate's source; always the same for the same source.

    A source without `ModelNew`, or that does not parse, has the id of its words.
    """
    main, beside = source_files.cut(source)
    form = _form(main)
    if form is None:
        return content_id("words", " ".join(as_read(source).split()))
    return content_id("program", *form.program, beside)


def _form(source: str) -> Form | None:
    tree = parsed(source)
    if tree is None:
        return None
    try:
        _Tidied().visit(tree)
    except RecursionError:  # as deep a tree has no form
        return None
    return form_of(tree, _ENTRY, kept=_KEPT, by_names=True)


class _Tidied(ast.NodeTransformer):
    """Removes comments and blanks from strings of several lines that are no Python: from C."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Tidy a string."""
        text = node.value
        if isinstance(text, str) and "\n" in text and parsed(textwrap.dedent(text)) is None:
            node.value = " ".join(_C_COMMENT.sub(" ", text).split())
        return node
