"""Train language models to write faster GPU code, and prove that the code is faster."""

from __future__ import annotations

from cudal1.processes import isolate

TYPE_CHECKING = False  # the flag of that name in `typing` would import the module
if TYPE_CHECKING:
    from cudal1.api.connecting import connect
    from cudal1.api.given import problem_text
    from cudal1.api.judging import judge, judge_many
    from cudal1.applying.apply import Applied, apply, unapply
    from cudal1.capturing.capture import capture
    from cudal1.errors import CudaL1Error
    from cudal1.verdict import Verdict

isolate("cudal1.cli")

EXPORTS = {
    "apply": "cudal1.applying.apply",
    "capture": "cudal1.capturing.capture",
    "connect": "cudal1.api.connecting",
    "judge": "cudal1.api.judging",
    "judge_many": "cudal1.api.judging",
    "problem_text": "cudal1.api.given",
    "unapply": "cudal1.applying.apply",
    "Applied": "cudal1.applying.apply",
    "CudaL1Error": "cudal1.errors",
    "Verdict": "cudal1.verdict",
}
"""Names that other programs may import from here, each with the module that has it."""

__all__ = [
    "Applied",
    "CudaL1Error",
    "Verdict",
    "apply",
    "capture",
    "connect",
    "judge",
    "judge_many",
    "problem_text",
    "unapply",
]


def __getattr__(name: str) -> object:
    """Return an export; its module is imported by the first question."""
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})
