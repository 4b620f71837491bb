"""Publications: statements of single machines, and the files that hold them.

A place has

    publications/TIME-WRITER-DIGEST.json    what was said when, and in which files
    facts/TABLE/DIGEST.parquet              its rows
    repeats/TABLE/DIGEST.parquet            rows of all publications that do not hold

Files are named by their content and never change. A publication is written after its files, so that
a killed one is not seen. Several writers need no lock: no two of them write the same name with
another content.

A publication that saw all others names the rows that do not hold, for its readers. While writers
that did not see each other are the latest, readers find them by themselves (`repeats.py`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from cudal1.errors import StoreError
from cudal1.ledger import schema
from cudal1.ledger.published.place import MANIFESTS, Place

log = logging.getLogger("cudal1")

WRITER = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of a writer's name."""
_TIME = "%Y%m%dT%H%M%S%fZ"
_MANIFEST = re.compile(rf"{MANIFESTS}/(\d{{8}}T\d{{12}}Z)-({WRITER})-([0-9a-f]{{16}})\.json")
_SHARD = re.compile(r"(facts|repeats)/(\w+)/[0-9a-f]{16}\.parquet")
_READERS = 16
"""Publications that are read at once: each is small, and waits for the network alone."""


@dataclass(frozen=True)
class Shard:
    """One file of rows of one table."""

    table: str
    name: str
    num_rows: int
    num_bytes: int
    columns: tuple[str, ...]
    stage: str | None = None
    """The stage that the rows are of; None for facts, which are of no stage."""


@dataclass(frozen=True)
class Publication:
    """One statement of one writer."""

    published_at: str
    """UTC, to the microsecond; later than all publications that its writer saw."""
    writer: str
    version: int
    """Version of the tables."""
    shards: tuple[Shard, ...]
    seen: str = ""
    """Digest of the names of all publications that its writer saw."""
    repeats: tuple[Shard, ...] = ()
    """Names of files and units that do not hold, for each table that has some."""

    def num_rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        counts: dict[str, int] = {}
        for shard in self.shards:
            counts[shard.table] = counts.get(shard.table, 0) + shard.num_rows
        return counts

    def content(self) -> bytes:
        """Return the publication as JSON."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    def name(self) -> str:
        """Return the name of its file."""
        said = f"{self.published_at}-{self.writer}-{digest(self.content())}"
        return f"{MANIFESTS}/{said}.json"


def digest(content: bytes) -> str:
    """Return the digest of a content by which its file is named."""
    return hashlib.sha256(content).hexdigest()[:16]


def shard_name(table: str, content_digest: str, *, folder: str = "facts") -> str:
    """Return the name of a file of rows."""
    return f"{folder}/{table}/{content_digest}.parquet"


def digest_of_names(found: Sequence[Publication]) -> str:
    """Return the digest by which a publication says that it saw these."""
    return digest("\n".join(sorted(each.name() for each in found)).encode())


def is_settled(found: Sequence[Publication]) -> bool:
    """Return whether the latest publication saw all others, and so names what does not hold."""
    return bool(found) and found[-1].seen == digest_of_names(found[:-1])


def time_after(seen: Sequence[Publication], now: datetime) -> str:
    """Return the time of a publication made now: later than all that were seen.

    Clocks of machines differ. So what answers an earlier publication is later than it.
    """
    times = [datetime.strptime(each.published_at, _TIME) for each in seen]
    earliest = max(times, default=datetime.min) + timedelta(microseconds=1)
    return max(now.replace(tzinfo=None), earliest).strftime(_TIME)


def publications(place: Place) -> tuple[list[Publication], dict[str, int]]:
    """Return all publications of a place, the earliest first, and the sizes of all its files.

    Files that are no shards are left out with a warning.

    Raises:
        StoreError: a publication or a shard is damaged, or of newer code; or no place is there.
    """
    sizes = place.files()
    names = sorted(name for name in sizes if _MANIFEST.fullmatch(name))
    foreign = sorted(name for name in sizes if not (_MANIFEST.fullmatch(name) or _is_shard(name)))
    if foreign:
        others = f" and {len(foreign) - 1} other files" if len(foreign) > 1 else ""
        log.warning(
            "ledger: %s: %s%s: no shards, left out; move them elsewhere",
            place.name,
            foreign[0],
            others,
        )
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(lambda name: _read(place, name), names))
    for name, publication in zip(names, found, strict=True):
        for shard in (*publication.shards, *publication.repeats):
            if sizes.get(shard.name) != shard.num_bytes:
                raise _incomplete(place, name, publication, shard.name)
    return found, sizes


def _is_shard(name: str) -> bool:
    return _SHARD.fullmatch(name) is not None


def _read(place: Place, name: str) -> Publication:
    content = place.read(name)
    matched = _MANIFEST.fullmatch(name)
    assert matched is not None
    if digest(content) != matched[3]:
        raise StoreError(
            f"{place.name}: {name} is half-written or was changed: delete it, and publish again "
            f"from {matched[2]}"
        )
    said = json.loads(content)
    if said["version"] > schema.newest():
        raise StoreError(
            f"{place.name}: {name} is of version {said['version']}, newer than this code's "
            f"{schema.newest()}: update cudal1"
        )
    shards, repeats = (
        tuple(Shard(**{**each, "columns": tuple(each["columns"])}) for each in said[kind])
        for kind in ("shards", "repeats")
    )
    return Publication(**{**said, "shards": shards, "repeats": repeats})


def _incomplete(place: Place, name: str, publication: Publication, shard: str) -> StoreError:
    return StoreError(
        f"{place.name}: {shard} is missing or half-written: delete {name}, and publish again from "
        f"{publication.writer}"
    )
