"""Pack the state in files small enough to travel: a lent machine starts bare and returns little.

The files hold everything that was judged and tried, and the policies that rows still need. They
hold no checkpoints. A training run that a piece's end has cut off begins again on the next machine.
Its verdicts are known then, so only sampling and updates are repeated.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from benchmarks.ablation.memory import Diary
from benchmarks.ablation.plan import Plan, Row
from cudal1.errors import ConfigError

CHUNK_BYTES = 12 * 2**20
PREFIX = "state.zip."
FOLDERS = ("training", "exams")


def pack(plan: Plan, state: Path, out: Path) -> list[Path]:
    """Write the state as numbered pieces of one archive; return them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{PREFIX}*"):
        old.unlink()
    buffer = io.BytesIO()
    folders = [*(state / name for name in FOLDERS), *_needed(plan, state)]
    files = [*state.glob("*.jsonl"), *state.glob("*.txt"), *state.glob("table.*")]
    files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        for path in files:
            archive.write(path, path.relative_to(state))
    content = buffer.getvalue()
    pieces: list[Path] = []
    for number, first in enumerate(range(0, len(content), CHUNK_BYTES)):
        pieces.append(out / f"{PREFIX}{number:03d}")
        pieces[-1].write_bytes(content[first : first + CHUNK_BYTES])
    return pieces


def unpack(folder: Path, state: Path) -> None:
    """Restore a packed state.

    Raises:
        ConfigError: there are no pieces in the folder.
    """
    pieces = sorted(folder.glob(f"{PREFIX}*"))
    if not pieces:
        raise ConfigError(f"{folder}: holds no {PREFIX}000; give the folder that `pack` wrote")
    state.mkdir(parents=True, exist_ok=True)
    content = b"".join(piece.read_bytes() for piece in pieces)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(state)


def _needed(plan: Plan, state: Path) -> list[Path]:
    """Return policies of rows that are not examined yet, and the policies that these start from."""
    wanted: dict[Path, None] = {}
    for seed in plan.seeds:
        rows = [row for row in plan.rows if not is_examined(plan, state, row, seed)]
        for row in rows:
            wanted[state / "policies" / f"{row.value}-{seed}"] = None
            if row.is_reinforced:
                wanted[state / "policies" / f"{Row.SELFSUP.value}-{seed}"] = None
            if row is Row.SELFSUP:
                for name in (Row.SFT.value, *plan.selfsup.names[:-1]):
                    wanted[state / "policies" / f"{name}-{seed}"] = None
    return [folder for folder in wanted if (folder / "config.json").exists()]


def is_examined(plan: Plan, state: Path, row: Row, seed: int) -> bool:
    """Return whether a row's line of the table exists for one seed."""
    folder = state / "exams" / f"{row.value}-{seed}"
    paths = [folder / f"{group.value}.jsonl" for group in plan.exam.groups]
    return all(p.exists() and len(Diary(p).batches) == plan.exam.rounds for p in paths)
