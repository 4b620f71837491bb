"""Problems in KernelBench's format, composed of one to four operations; endless, and deterministic.

Held-out problems differ from training problems in the *combination* of operations. A sixth of all
combinations of two or more is reserved by hash, for every device class and seed, and never trained
on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, pairwise
from typing import Final

from cudal1.errors import ConfigError, SuiteError
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.suite.generator.families import BY_NAME, FAMILIES, KNOBS, Family

GENERATOR_VERSION: Final = "1"
"""Part of every generated problem's revision; raised when the same arguments give other text."""

_RESERVED_SHARE: Final = 6
_FUNCTIONS: Final = ("torch.relu", "torch.tanh", "torch.sigmoid")
_CONSTANTS: Final = ("0.1", "0.2", "0.25", "0.5", "0.75", "1.5", "2.0")
_BLOCKS: Final = 8
"""Number of attention heads, and of blocks of columns: loops stay short."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of a device class; CUDA tensors hold 16 to 128 MiB, far above a launch."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    tall: tuple[int, ...]
    """Numbers of rows where the best chunk depends on them."""
    cubic: tuple[int, int]
    """Maximum rows and columns of a problem that multiplies matrices."""
    knob: tuple[tuple[int, int], ...]
    """Rows and columns of a problem with a knob."""
    unseen: tuple[tuple[int, int], ...]
    """Rows and columns of a problem with a knob that only held-out problems have."""
    inner: tuple[int, ...]
    """Inner dimensions of a chain of matrices."""


_SMALL: Final = _Sizes(
    (64, 96, 128, 192, 256),
    (64, 96, 128, 192, 256),
    (64, 256, 512, 1024),
    (256, 256),
    ((256, 64), (512, 64), (128, 128), (512, 128), (256, 256)),
    ((384, 96), (192, 192)),
    (16, 64, 256),
)
_SIZES: Final = {
    DeviceClass.CPU: _SMALL,
    DeviceClass.FAKE: _SMALL,
    DeviceClass.CUDA: _Sizes(
        (4096, 8192),
        (1024, 2048, 4096),
        (4096, 8192, 16384),
        (4096, 2048),
        ((8192, 512), (16384, 512), (32768, 512), (4096, 1024), (8192, 1024), (16384, 1024)),
        ((12288, 512), (6144, 1024), (8192, 768)),
        (64, 256, 1024),
    ),
}


def is_reserved(families: Sequence[str]) -> bool:
    """Return whether a combination of operations is held out; single operations never are."""
    if len(families) < 2:
        return False
    digest = sha256(" ".join(sorted(families)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % _RESERVED_SHARE == 0


def generate(
    seed: int,
    index: int,
    *,
    device_class: DeviceClass,
    num_stages: int,
    split: Split = Split.TRAIN,
    families: Sequence[str] | None = None,
    num_knobs: int = 0,
) -> Problem:
    """Return problem number `index` of a seed; equal arguments give equal problems.

    Args:
        seed: seed of the whole series.
        index: number in the series.
        device_class: class of the device to draw sizes for.
        num_stages: number of operations, 1 to 4.
        split: TRAIN never has a reserved combination, HELDOUT always (when of two stages or more).
        families: names of the operations in order, instead of drawing them.
        num_knobs: number of drawn operations with a knob (`families.KNOBS`), never two in a row;
            fewer where they do not fit.

    Raises:
        ConfigError: for an unknown operation, or one that cannot be followed by others.
    """
    rng = random.Random(f"{seed}/{index}/{num_stages}/{split.value}/{device_class.value}")
    names = _draw(rng, num_stages, split, num_knobs) if families is None else tuple(families)
    stages = [_family(name) for name in names]
    if not 1 <= len(stages) <= 4 or any(stage.ends for stage in stages[:-1]):
        raise ConfigError(
            f"generator: cannot compose {'+'.join(names) or 'nothing'}: use 1 to 4, reductions last"
        )
    return Problem(
        suite="generated",
        level={1: 1, 2: 2, 3: 2, 4: 3}[len(stages)],
        number=index + 1,
        name="_".join(names),
        split=split,
        device_class=device_class,
        revision=f"generator-{GENERATOR_VERSION}-{seed}",
        source=_source(stages, rng, _SIZES[device_class], split),
    )


def problems(
    count: int,
    *,
    seed: int,
    device_class: DeviceClass,
    split: Split,
    num_stages: tuple[int, int] = (1, 3),
    num_knobs: int = 0,
) -> list[Problem]:
    """Return `count` different problems.

    Args:
        count: number of problems.
        seed: seed of the whole series.
        device_class: class of the device to draw sizes for.
        split: TRAIN never has a reserved combination, HELDOUT always.
        num_stages: least and greatest number of operations; held-out problems have two or more.
        num_knobs: number of operations with a knob; fewer where they do not fit.

    Raises:
        SuiteError: there are not so many.
    """
    found: dict[str, Problem] = {}
    index = 0
    while len(found) < count:
        if index > 100 * (count + 1):
            raise SuiteError(
                f"generator: only {len(found)} of {count} different problems; allow more operations"
            )
        shortest = max(num_stages[0], 1 if split is Split.TRAIN else 2)
        drawn = random.Random(f"{seed}/{index}/stages").randint(
            shortest, max(num_stages[1], shortest)
        )
        problem = generate(
            seed,
            index,
            device_class=device_class,
            num_stages=drawn,
            split=split,
            num_knobs=num_knobs,
        )
        found.setdefault(problem.id, problem)
        index += 1
    return list(found.values())


def _family(name: str) -> Family:
    if name not in BY_NAME:
        raise ConfigError(
            f"generator: no operation {name!r}; there are {', '.join(sorted(BY_NAME))}"
        )
    return BY_NAME[name]


def _draw(rng: random.Random, num_stages: int, split: Split, num_knobs: int) -> tuple[str, ...]:
    inner = [family.name for family in FAMILIES if not family.ends]
    while True:
        names = [*rng.sample(inner, num_stages - 1), rng.choice(FAMILIES).name]
        drawn_twice = len(set(names)) < num_stages
        for place in apart(rng, num_stages, num_knobs):
            names[place] = rng.choice(KNOBS).name
        wanted = split is Split.HELDOUT and num_stages > 1
        if not drawn_twice and is_reserved(names) == wanted:
            return tuple(names)


def apart(rng: random.Random, num_stages: int, count: int) -> tuple[int, ...]:
    """Return places for knobs among stages: two adjacent products would be a longer one."""
    fitting = [
        places
        for places in combinations(range(num_stages), min(count, (num_stages + 1) // 2))
        if all(later - place > 1 for place, later in pairwise(places))
    ]
    return rng.choice(fitting)


def _source(stages: Sequence[Family], rng: random.Random, sizes: _Sizes, split: Split) -> str:
    cubic = sizes.cubic if any(s.cubic for s in stages) else (10**9, 10**9)
    max_rows = min(cubic[0], *(s.max_rows or 10**9 for s in stages))
    max_columns = min(cubic[1], *(s.max_columns or 10**9 for s in stages))
    tall = all(s.prefers_tall or s.name in _CHEAP for s in stages) and any(
        s.prefers_tall for s in stages
    )
    rows = [n for n in (sizes.tall if tall else sizes.rows) if n <= max_rows] or [max_rows]
    columns = [n for n in sizes.columns if n <= max_columns] or [max_columns]
    num_rows, num_columns = rng.choice(rows), rng.choice(columns)
    if any(stage.has_knob for stage in stages):
        pairs = sizes.knob if split is Split.TRAIN else (*sizes.knob, *sizes.unseen)
        fitting = [(r, c) for r, c in pairs if r <= max_rows and c <= max_columns]
        num_rows, num_columns = rng.choice(fitting or [(num_rows, num_columns)])
    init: list[str] = []
    forward: list[str] = []
    for number, stage in enumerate(stages, start=1):
        values = _constants(rng, number, num_columns)
        if stage.has_knob:
            values |= {f"d{n}": str(rng.choice(sizes.inner)) for n in (1, 2, 3)}
        init += _filled(stage.init, values)
        forward += _filled(stage.forward, values)
    return _TEMPLATE.format(
        rows=num_rows,
        columns=num_columns,
        signature=", rows, columns" if init else "",
        arguments="ROWS, COLUMNS" if init else "",
        init="".join(f"\n        {line}" for line in init),
        forward="\n        ".join(forward),
    )


_CHEAP: Final = frozenset(
    {"silu", "gelu_tanh", "softplus", "affine_chain", "clamp_twice", "leaky_relu", "power"}
)


def _constants(rng: random.Random, number: int, columns: int) -> dict[str, str]:
    drawn = rng.sample(_CONSTANTS, 4)
    return {
        "k": str(number),
        **{f"c{n}": text for n, text in enumerate(drawn, start=1)},
        "f": rng.choice(_FUNCTIONS),
        "n": str(columns // _BLOCKS),
        "heads": str(_BLOCKS),
        "scale": rng.choice(("0.125", "0.0625", "0.25")),
    }


def _filled(text: str, values: dict[str, str]) -> list[str]:
    return [line for line in text.format_map(values).split("\n") if line]


_TEMPLATE: Final = """\
import torch
import torch.nn as nn

ROWS = {rows}
COLUMNS = {columns}


class Model(nn.Module):
    def __init__(self{signature}):
        super().__init__(){init}

    def forward(self, x):
        {forward}
        return x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [{arguments}]
"""
