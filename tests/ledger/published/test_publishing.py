"""Tests that several writers publish their facts, and that each fact counts once."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cudal1.errors import StoreError
from cudal1.ledger import Ledger
from cudal1.ledger.published import folder as folders
from tests.ledger.conftest import Facts
from tests.ledger.published.conftest import Make, publish

pytestmark = pytest.mark.slow


def content(place: Path, facts: Facts) -> dict[str, list[dict[str, object]]]:
    with Ledger.read(place) as ledger:
        return facts.content(ledger)


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def raced(first: Path, second: Path) -> None:
    """Put into the first place what the second has, as if no writer had seen the other."""
    shutil.copytree(second, first, dirs_exist_ok=True)


def one(place: Path, query: str) -> object:
    with Ledger.read(place) as ledger:
        return ledger.sql(query).item()


def test_a_place_has_the_facts_of_the_ledger(make: Make, facts: Facts, tmp_path: Path) -> None:
    data = make("a")
    publish(data, tmp_path / "place")
    assert content(tmp_path / "place", facts) == content(data, facts)


def test_publishing_again_adds_no_file(make: Make, tmp_path: Path) -> None:
    data, place = make("a"), tmp_path / "place"
    publish(data, place)
    before = files(place)
    assert publish(data, place) is None
    assert files(place) == before


def test_publishing_leaves_the_data_folder_as_it_is(make: Make, tmp_path: Path) -> None:
    data = make("a")
    before = files(data)
    publish(data, tmp_path / "place")
    assert files(data) == before


def test_a_second_writer_publishes_only_what_the_first_has_not(make: Make, tmp_path: Path) -> None:
    place = tmp_path / "place"
    publish(make("a"), place, "a")
    said = publish(make("b"), place, "b")
    assert said is not None
    rows = said.num_rows()
    assert (rows["verdicts"], rows["timing_samples"], rows["completions"]) == (1, 12, 1)


def test_facts_of_writers_that_did_not_see_each_other_count_once(
    make: Make, facts: Facts, tmp_path: Path
) -> None:
    first, second, raced_place = (tmp_path / name for name in ("one", "two", "raced"))
    data = make("a"), make("b")
    for place, folder, writer in zip((first, second), data, "ab", strict=True):
        publish(folder, place, writer)
    publish(data[1], first, "b")  # in turn
    publish(data[0], raced_place, "a")
    raced(raced_place, second)
    assert content(raced_place, facts) == content(first, facts)


def test_the_next_publication_names_what_racing_writers_repeated(
    make: Make, facts: Facts, tmp_path: Path
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    data = make("a"), make("b")
    for place, folder, writer in zip((first, second), data, "ab", strict=True):
        publish(folder, place, writer)
    raced(first, second)
    before = content(first, facts)
    said = publish(data[0], first, "a")
    assert said is not None
    assert said.shards == ()
    assert {shard.table for shard in said.repeats} >= {"verdicts", "candidates", "members"}
    assert publish(data[1], first, "b") is None
    assert content(first, facts) == before


def test_a_place_that_lost_the_latest_publication_counts_each_fact_once(
    make: Make, facts: Facts, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(make("a"), place, "a")
    publish(make("b"), place, "b")
    last = publish(make("c"), place, "c")
    assert last is not None
    (place / last.name()).unlink()
    once = "select count(*) = count(distinct candidate_id) from verdicts"
    assert one(place, once) is True
    assert one(place, "select count(*) from verdicts") == 6


def test_samples_hold_with_their_verdict(make: Make, facts: Facts, tmp_path: Path) -> None:
    """Two machines judged one candidate: one verdict counts, with its own samples."""
    candidate = facts.candidate("class ModelNew: judged twice")
    for name, count, certified in (("a", 4, 1.4), ("b", 8, 1.6)):
        with Ledger.open(make(name)) as ledger:
            ledger.begin("rl")
            ledger.add_verdict(facts.correct(candidate, certified), facts.samples(count))
            ledger.export()
        publish(tmp_path / name, tmp_path / f"place-{name}", name)
    place = tmp_path / "place-a"
    raced(place, tmp_path / "place-b")
    of_it = f"where candidate_id = '{candidate.id}'"
    assert one(place, f"select certified from verdicts {of_it}") == 1.4
    assert one(place, f"select count(*) from timing_samples {of_it}") == 4
    assert one(place, f"select sum(num_samples) from timing_spreads {of_it}") == 4


def test_a_stage_that_ran_again_uses_what_it_used_last(
    make: Make, facts: Facts, tmp_path: Path
) -> None:
    data, place = make("a"), tmp_path / "place"
    publish(data, place)
    with Ledger.open(data) as ledger:
        ledger.begin("filter", run="another")
        ledger.add_completion(facts.completion("alone"), None, "no code block")
        ledger.export()
    publish(data, place)
    assert one(place, "select string_agg(key) from members where kind = 'completions'") == "alone"
    assert one(place, "select count(*) from rewards") == 0


def test_the_latest_ruling_holds(make: Make, facts: Facts, tmp_path: Path) -> None:
    place, candidate = tmp_path / "place", facts.candidate("class ModelNew: x = y")
    for name, at in (("early", "2026-02-01T00:00:00Z"), ("late", "2026-03-01T00:00:00Z")):
        with Ledger.open(make(name)) as ledger:
            ledger.begin("rl")
            ledger.add_ruling(facts.ruling(candidate, is_cheat=name == "early", at=at))
            ledger.export()
    publish(tmp_path / "late", place, "late")
    publish(tmp_path / "early", place, "early")
    assert one(place, "select is_cheat from rulings") is False


def test_an_answer_replaces_a_failed_request_and_stays(
    make: Make, facts: Facts, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    for name, reason in (("a", "error: HTTP 500"), ("b", "stop"), ("c", "error: HTTP 502")):
        with Ledger.open(make(name)) as ledger:
            ledger.begin("rl")
            asked = facts.completion("asked", stage="rl", finish_reason=reason)
            ledger.add_completion(asked, None, "no code block")
            ledger.export()
        publish(tmp_path / name, place, name)
    query = "select finish_reason from completions where completion_id = 'asked'"
    assert one(place, query) == "stop"


def test_writers_that_disagree_do_not_take_turns(make: Make, facts: Facts, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for name in "ab":
        with Ledger.open(make(name)) as ledger:
            ledger.begin("rl")
            answered = facts.completion("parsed by each")
            ledger.add_completion(answered, facts.candidate(f"class ModelNew: {name}"), None)
            ledger.export()
        assert publish(tmp_path / name, place, name) is not None
    assert [publish(tmp_path / name, place, name) for name in "abab"] == [None] * 4


def test_a_publication_that_was_killed_is_not_seen(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, write = tmp_path / "place", folders.FolderPlace.write
    publish(make("a"), place, "a")
    killed = make("b")

    def write_until(self: folders.FolderPlace, name: str, content: Path) -> None:
        if "publications" in name:
            raise KeyboardInterrupt
        write(self, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(folders.FolderPlace, "write", write_until)
        with pytest.raises(KeyboardInterrupt):
            publish(killed, place, "b")
    assert one(place, "select count(*) from completions where completion_id = 'of b'") == 0
    publish(killed, place, "b")
    assert one(place, "select count(*) from completions where completion_id = 'of b'") == 1


def test_a_publication_is_later_than_those_that_its_writer_saw(make: Make, tmp_path: Path) -> None:
    """Clocks differ: the order in which machines saw each other counts."""
    place = tmp_path / "place"
    first = publish(make("a"), place, "a")
    second = publish(make("b"), place, "b")
    assert first is not None
    assert second is not None
    assert second.published_at > first.published_at


def test_a_writer_has_a_plain_name(make: Make, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^a/b: is no writer's name; use at most 64 letters"):
        publish(make("a"), tmp_path / "place", "a/b")


def test_ledgers_of_two_folders_are_two_writers_by_default(make: Make, tmp_path: Path) -> None:
    said = []
    for name in "ab":
        with Ledger.read(make(name)) as ledger:
            said.append(ledger.publish(tmp_path / "place", writer=None))
    assert len({each.writer for each in said if each is not None}) == 2
