"""Find out whether a source uses a name that no header declares, without compiling all headers.

`load_inline` without declarations writes a file that binds functions which nothing declares. Such a
file fails with few headers after 3 s and with all of them after 14 s. The preprocessor reads all of
them in 2 s, and tells whether any has the name.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from .steps import after  # relative: the package has two names (`__main__`)

UNDECLARED = re.compile(
    r"(?P<file>.+?):\d+:(?:\d+:)? (?:fatal )?error: (?:"
    r"['\u2018](?P<gcc>\w+)['\u2019] was not declared in this scope(?:; did you mean .*)?"
    r"|use of undeclared identifier '(?P<clang>\w+)'(?:; did you mean .*)?)"
)
"""A message about a name that does not depend on a template's arguments."""
FROM = re.compile(rb'^# \d+ "(.*)"[ \d]*$', re.MULTILINE)
"""The preprocessor's mark on lines of another file."""


def names(errors: Sequence[str], path: str) -> set[str]:
    """Return the undeclared names, if no error of a source is about anything else."""
    found = [UNDECLARED.fullmatch(error) for error in errors]
    if not all(each is not None and each["file"] == path for each in found):
        return set()
    return {each["gcc"] or each["clang"] for each in found if each is not None}


def are_undeclared(
    wanted: set[str], compiler: str, arguments: Sequence[str], path: str, text: str
) -> bool:
    """Return whether no header has any of the names, and no macro writes one in the source.

    Then the source fails with all headers, too, on the same lines.

    Args:
        wanted: the names.
        compiler: the compiler.
        arguments: its arguments, which compile the source with all headers.
        path: the source, as in `arguments`.
        text: its text, without comments.
    """
    left_out = {"-c", "-o", after("-o", arguments), "-MD", "-MMD", "-MF", after("-MF", arguments)}
    preprocess = [compiler, *(each for each in arguments if each not in left_out), "-E"]
    done = subprocess.run(
        preprocess,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if done.returncode or not wanted:
        return False
    _, *parts = FROM.split(done.stdout)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    own = b"".join(lines for name, lines in pairs if name.decode(errors="replace") == path)
    headers = b"".join(lines for name, lines in pairs if name.decode(errors="replace") != path)
    for name in wanted:
        word = rf"\b{name}\b"
        times = len(re.findall(word, text))
        if re.search(word.encode(), headers) or len(re.findall(word.encode(), own)) > times:
            return False
    return True
