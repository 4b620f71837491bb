"""List places where the code of an odd problem or candidate runs, as pieces that run an action."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.fuzz.actions import ACTIONS, PLAIN_ERRORS, RAISES, Action
from benchmarks.fuzz.pieces import Expected, Parts, Piece


@dataclass(frozen=True)
class Place:
    """A place where an action runs."""

    name: str
    part: str
    """The part of `Parts`."""
    condition: str = ""
    always: bool = True
    """True if a trial of the problem runs it."""
    never: bool = False
    """True if nothing that is asked of a problem runs it, or nothing notices what it raises."""
    indented: str = ""
    """Text before the action."""


IN_TRIAL = "any('probe' in word for word in sys.orig_argv)"
PLACES = [
    Place("at import", "top"),
    Place("at the end of the import", "bottom"),
    Place("in the class body", "body"),
    Place("in the constructor", "init"),
    Place("in forward", "enter"),
    Place("in get_inputs", "draw"),
    Place("in get_init_inputs", "give"),
    Place("in the second call", "enter", "if _calls == 2:"),
    Place("in the tenth call", "enter", "if _calls == 10:", always=False),
    Place("in the second draw", "draw", "if _draws == 2:"),
    Place("on negative inputs", "enter", "if (given[0] < 0).any():", always=False),
    Place("on positive inputs", "enter", "if (given[0] > 0).all():", always=False),
    Place("on large inputs", "enter", "if given[0].abs().max() > 50:", always=False),
    Place("on small inputs", "enter", "if given[0].abs().max() < 0.01:", always=False),
    Place("on zeros", "enter", "if not given[0].any():", always=False),
    Place("on integers", "enter", "if (given[0] == given[0].round()).all():", always=False),
    Place("in float64", "enter", "if given[0].dtype == torch.float64:", always=False),
    Place("without memory overlap", "enter", "if given[0].is_contiguous():", always=False),
    Place("in the judge, at import", "top", f"if not {IN_TRIAL}:", always=False),
    Place("in the judge, in the constructor", "init", f"if not {IN_TRIAL}:", always=False),
    Place("in the judge, in forward", "enter", f"if not {IN_TRIAL}:", always=False),
    Place(
        "in the judge, in the 30th call",
        "enter",
        f"if _calls == 30 and not {IN_TRIAL}:",
        always=False,
    ),
    Place("in the judge, in get_inputs", "draw", f"if not {IN_TRIAL}:", always=False),
    *(
        Place(f"in {name}", "methods", always=False, indented=f"def {name}(self, *a, **k):")
        for name in (
            "__del__",
            "state_dict",
            "load_state_dict",
            "double",
            "to",
            "__deepcopy__",
            "__reduce__",
            "eval",
            "train",
            "parameters",
            "buffers",
            "requires_grad_",
            "_apply",
            "__getstate__",
            "__repr__",
            "__iter__",
            "named_modules",
        )
    ),
    Place(
        "at exit",
        "top",
        always=False,
        never=True,
        indented="import atexit\n@atexit.register\ndef _at_exit():",
    ),
    Place(
        "in a thread",
        "top",
        always=False,
        indented="import threading\n@lambda f: threading.Thread(target=f).start()\n"
        "def _in_a_thread():",
    ),
]
FAMILIES = {"on large inputs", "on small inputs", "on zeros", "on positive inputs"}
"""Places of families that an oracle leaves out where a reference raises an `Exception`."""


def action_piece(action: Action, place: Place) -> Piece:
    """Return the piece that has `action` run there."""
    lines = action.code
    for around in (place.condition, place.indented):
        if around:
            lines = around + "\n" + "\n".join(f"    {line}" for line in lines.split("\n"))
    return Piece(
        name=f"{action.name} {place.name}",
        place=place.name,
        parts=replace(Parts(), **{place.part: lines}),  # pyright: ignore[reportArgumentType] -- by name
        expected=_expected(action, place),
        is_function=place.part != "enter" or place.name in FAMILIES or action.is_harmless,
        tampers=action.tampers,
        plain_only=place.name in FAMILIES,
        stalls=action.stalls,
    )


def _expected(action: Action, place: Place) -> Expected:
    if action.is_harmless and place.part != "methods" and place.name != "in a thread":
        return Expected.JUDGED
    if action.ends and place.always:
        return Expected.REFUSED
    is_plain = action in RAISES and action.name.removeprefix("raises ") in PLAIN_ERRORS
    if is_plain and (place.never or place.name in FAMILIES):
        return Expected.JUDGED
    return Expected.EITHER


def action_pieces(kind: str) -> Iterator[Piece]:
    """Yield all pieces of a kind of action."""
    for action, place in product(ACTIONS[kind], PLACES):
        yield action_piece(action, place)
