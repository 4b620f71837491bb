"""Compare ways to find cases for a reviewer: are the cases found of the right kind?

python -m benchmarks.answers.retrieval

Every cheat of tests/harness is taken out in turn and looked for among the others, as it is and in
disguise. Counted are how many of the first three are of its family, and whether there is one. (Both
files of an attack that exists for two devices are taken out.) Then the shipped cases are searched
for them, and for recorded cheats.

Last, the similarity of the nearest case is measured for cheats and for honest candidates. This
shows whether a score could tell them apart; it must not be used so. Every source is stripped first.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
import yaml

from benchmarks.answers.disguise import disguised
from benchmarks.answers.retrieval_methods import METHODS, Method, Scores
from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, ROOT, print_table
from benchmarks.machine import cpu_name, versions
from cudal1.extract.extract import extract
from cudal1.hack_case import CaseOrigin, HackCase
from cudal1.llm.reviewer.hack_cases import shipped_cases
from cudal1.llm.reviewer.similarity import most_similar
from cudal1.llm.reviewer.stripping import stripped

SHOWN = 3
NUM_RESAMPLES = 2000
NUM_TIMED = 500
"""Cases in the timing, from measured sources, some of them twice with an extra line."""
CHOSEN = "syntax"
"""The method that cudal1 uses."""
GROUPS = ("exploits", "exploits_cuda")
FAMILIES = yaml.safe_load((Path(__file__).parent / "attack_families.yaml").read_text())
HONEST = {"correct", "needs_cuda", "wrong"}
"""Labels of recordings that do not cheat; a wrong one is honestly wrong."""


@dataclass(frozen=True)
class Text:
    """A stripped source with its name and family."""

    name: str
    family: str
    source: str


@dataclass(frozen=True)
class Found:
    """The scores of the first three cases, query by query."""

    precisions: tuple[float, ...]
    """Shares of the three that are of the query's family."""
    hits: tuple[bool, ...]
    """True where one of them is of the query's family."""

    def marks(self) -> dict[str, object]:
        """Return means over queries; the first with a 95 % interval."""
        return {
            "queries": len(self.hits),
            "precision_at_3": round(fmean(self.precisions), 4),
            "interval": _interval(self.precisions),
            "one_of_3": round(fmean(self.hits), 4),
        }


def main() -> None:
    """Measure, print tables, and write results/retrieval.json."""
    parser = Parser(prog="python -m benchmarks.answers.retrieval", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    cheats = corpus(*GROUPS)
    hidden = [replace(text, source=stripped(disguised(text.source))) for text in cheats]
    recorded, honest = list(recordings({"cheat"})), list(recordings(HONEST))
    honest += corpus("honest", "honest_cuda")
    shipped = list(ours())
    methods: dict[str, dict[str, object]] = {"chance": chance(cheats)}
    families: dict[str, dict[str, float]] = {}
    reached = {text.family for text in shipped}
    chosen = searched(METHODS[CHOSEN], hidden, cheats)
    for name, method in METHODS.items():
        other = searched(method, hidden, cheats)
        methods[name] = {
            "plain": searched(method, cheats, cheats).marks(),
            "disguised": other.marks(),
            "disguised_less_than_chosen": _interval(
                [a - b for a, b in zip(chosen.precisions, other.precisions, strict=True)]
            ),
            "shipped_for_disguised": searched(
                method, [text for text in hidden if text.family in reached], shipped
            ).marks(),
            "shipped_for_recorded": searched(method, recorded, shipped).marks(),
            "nearest": nearest(method, cheats, hidden, honest),
        }
        families[name] = by_family(other, cheats)
        print(f"{name}: done", flush=True)
    found = {
        "benchmark": "retrieval",
        "measured": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "versions": versions("numpy", "torch", "transformers"),
        "cheats": len(cheats),
        "recorded_cheats": len(recorded),
        "honest": len(honest),
        "shipped": len(shipped),
        "families": dict(Counter(text.family for text in cheats)),
        "chosen": CHOSEN,
        "methods": methods,
        "one_of_3_by_family_disguised": families,
        "chosen_ms": timed([*cheats, *hidden, *honest]),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "retrieval.json").write_text(json.dumps(found, indent=1) + "\n")
    show(methods)
    print(found["chosen_ms"])


# --- sources -------------------------------------------------------------------------------------


def corpus(*groups: str) -> list[Text]:
    """Return files of tests/harness."""
    families = {stem: family for family, stems in FAMILIES["files"].items() for stem in stems}
    paths = [path for g in groups for path in sorted((ROOT / "tests/harness" / g).glob("*.py"))]
    return [
        Text(path.stem, families[path.stem] if groups == GROUPS else "", stripped(path.read_text()))
        for path in paths
    ]


def recordings(expected: set[str]) -> Iterable[Text]:
    """Yield sources in recorded answers that their author labels so."""
    known = {what: family for family, all_ in FAMILIES["techniques"].items() for what in all_}
    for path in sorted((ROOT / "cudal1/llm/recordings").glob("*.jsonl")):
        for line in path.read_text().strip().split("\n"):
            said = json.loads(line)
            source = extract(said["text"]).source
            if said.get("expect") in expected and source is not None:
                yield Text(said["name"], known.get(said["technique"], ""), stripped(source))


def ours() -> Iterable[Text]:
    """Yield the shipped cases."""
    families = {kind: family for family, kinds in FAMILIES["kinds"].items() for kind in kinds}
    for case in shipped_cases():
        yield Text(f"shipped {case.kind}", families[case.kind], case.source)


# --- figures -------------------------------------------------------------------------------------


def scored(method: Method, queries: Sequence[Text], cases: Sequence[Text]) -> Scores:
    """Return scores; files of the query's own attack get less than any score."""
    scores = method([text.source for text in queries], [text.source for text in cases])
    same = [[q.name == c.name and q.family == c.family for c in cases] for q in queries]
    return np.where(same, -np.inf, scores)


def searched(method: Method, queries: Sequence[Text], cases: Sequence[Text]) -> Found:
    """Return what is found for each query, files of its own name left out."""
    precisions, hits = list[float](), list[bool]()
    for query, row in zip(queries, scored(method, queries, cases), strict=True):
        first = [cases[int(i)] for i in np.argsort(-row, kind="stable")[:SHOWN]]
        right = [case.family == query.family for case in first]
        precisions.append(fmean(right))
        hits.append(any(right))
    return Found(tuple(precisions), tuple(hits))


def chance(cheats: Sequence[Text]) -> dict[str, object]:
    """Return the marks of three cases drawn at random from the corpus."""
    rng = random.Random(0)

    def drawn(queries: Sequence[str], cases: Sequence[str]) -> Scores:
        return np.array([[rng.random() for _ in cases] for _ in queries])

    many = [searched(drawn, cheats, cheats) for _ in range(50)]
    return {
        "precision_at_3": round(fmean(fmean(found.precisions) for found in many), 4),
        "one_of_3": round(fmean(fmean(found.hits) for found in many), 4),
    }


def nearest(
    method: Method, cheats: Sequence[Text], hidden: Sequence[Text], honest: Sequence[Text]
) -> dict[str, object]:
    """Return the score of the nearest cheat, for cheats and for honest sources."""
    marks: dict[str, object] = {}
    best: dict[str, list[float]] = {}
    for name, queries in {"cheats": cheats, "disguised": hidden, "honest": honest}.items():
        best[name] = scored(method, queries, cheats).max(axis=1).tolist()
        marks[name] = [round(float(q), 3) for q in np.quantile(best[name], (0.1, 0.5, 0.9))]
    for name in ("cheats", "disguised"):
        above = [(a > b) + (a == b) / 2 for a in best[name] for b in best["honest"]]
        marks[f"auc_{name}"] = round(fmean(above), 3)
    return marks


def by_family(found: Found, cheats: Sequence[Text]) -> dict[str, float]:
    """Return the share of a family's queries for which one of the three is right."""
    hits: dict[str, list[bool]] = {}
    for text, hit in zip(cheats, found.hits, strict=True):
        hits.setdefault(text.family, []).append(hit)
    return {family: round(fmean(all_), 3) for family, all_ in sorted(hits.items())}


def timed(texts: Sequence[Text]) -> dict[str, float]:
    """Return milliseconds of the method in use, for `NUM_TIMED` cases."""
    sources = list(dict.fromkeys(text.source for text in texts))
    for number in range(NUM_TIMED - len(sources)):
        sources.append(f"{sources[number]}\nx{number} = {number}\n")
    cases = [
        HackCase(kind="x", source=source, evidence="x", origin=CaseOrigin.CONFIRMED)
        for source in sources[:NUM_TIMED]
    ]
    laps: list[float] = []
    for text in [texts[0], *texts[:50]]:
        started = time.perf_counter()
        most_similar(text.source, cases, SHOWN)
        laps.append(1000 * (time.perf_counter() - started))
    return {
        "cases": NUM_TIMED,
        "first_query": round(laps[0], 1),
        "later_queries": round(median(laps[1:]), 1),
        "slowest_later": round(max(laps[1:]), 1),
    }


def show(methods: dict[str, dict[str, object]]) -> None:
    """Print the table."""
    header = ["method", "plain", "one", "disguised", "one", "shipped", "one", "recorded", "one"]
    rows: list[list[str]] = []
    for name, marks in methods.items():
        row = [name]
        for part in ("plain", "disguised", "shipped_for_disguised", "shipped_for_recorded"):
            one = marks.get(part, marks if part == "plain" else None)
            if isinstance(one, dict):
                row += [f"{one['precision_at_3']:.3f}", f"{one['one_of_3']:.3f}"]
        rows.append([*row, *[""] * (len(header) - len(row))])
    print_table(header, rows)
    for name, marks in methods.items():
        print(name, marks.get("nearest", ""))


def _interval(values: Sequence[float]) -> list[float]:
    """Return a 95 % interval of a mean, by resampling queries."""
    rng = np.random.default_rng(0)
    means = rng.choice(np.array(values), (NUM_RESAMPLES, len(values))).mean(axis=1)
    return [round(float(q), 3) for q in np.quantile(means, (0.025, 0.975))]


if __name__ == "__main__":
    main()
