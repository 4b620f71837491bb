"""Tests that the index in memory gives the plain query's answers in every case."""

from __future__ import annotations

import random

import pytest

from cudal1.errors import StoreError
from cudal1.ledger import Ledger, exemplar_index
from cudal1.selection.exemplar import Birth

PLAIN = """
select distinct c.candidate_id, v.certified as score, k.island,
       case when k.stage = 'rl' then k.attempt // 100 end as born
from judged v join candidates c using (candidate_id) join completions k using (candidate_id)
where v.problem_id = $problem_id and v.device_kind = 'cpu' and v.protocol_id = $protocol_id
  and v.status = 'correct' and v.certified is not null
  and exists (select 1 from members m where m.kind = 'verdicts' and m.stage in ('filter', 'rl')
              and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
  and exists (select 1 from members m where m.kind = 'completions' and m.stage in ('filter', 'rl')
              and m.key = k.completion_id)
order by c.candidate_id, born nulls first, k.island nulls first
"""


class Life:
    """A ledger with random events of a run of `rl`."""

    def __init__(self, ledger: Ledger, facts, seed: int) -> None:
        self.ledger = ledger
        self.facts = facts
        self.rng = random.Random(seed)
        self.problems = [facts.problem(name).id for name in ("softmax", "gelu")]
        self.candidates = [
            facts.candidate(f"class ModelNew: x = {i}").model_copy(update={"problem_id": problem})
            for i in range(6)
            for problem in self.problems
        ]

    def answer(self, stage: str = "rl") -> None:
        candidate = self.rng.choice([*self.candidates, None])
        answer = self.facts.completion(f"answer {self.rng.randrange(12)}", stage=stage).model_copy(
            update={"attempt": self.rng.randrange(500), "island": self.rng.choice([None, 0, 1])}
        )
        self.ledger.add_completion(answer, candidate, None if candidate else "none")

    def judge(self) -> None:
        verdict = self.facts.correct(self.rng.choice(self.candidates), self.rng.choice([1.0, 2.0]))
        other = self.rng.choice([{}, {}, {}, {"protocol_id": "other"}, {"device_kind": "gpu"}])
        if self.rng.random() < 0.2:
            verdict = self.facts.failed(self.rng.choice(self.candidates))
        self.ledger.add_verdict(verdict.model_copy(update=other), [])

    def review(self) -> None:
        is_cheat = self.rng.choice([True, False, False, None, None])
        candidate = self.rng.choice(self.candidates)
        code = f"code {self.candidates.index(candidate) // 2}"
        self.ledger.add_review(self.facts.review(candidate, is_cheat=is_cheat, code=code))

    def rule(self) -> None:
        candidate = self.rng.choice(self.candidates)
        code = f"code {self.candidates.index(candidate) // 2}"
        at = f"2026-01-01T00:00:{self.rng.randrange(10, 60)}Z"
        is_cheat = self.rng.random() < 0.3
        self.ledger.add_ruling(self.facts.ruling(candidate, is_cheat=is_cheat, at=at, code=code))

    def find(self) -> None:
        self.facts.known(self.ledger, self.rng.choice(self.candidates))

    def use(self) -> None:
        self.ledger.completion(f"answer {self.rng.randrange(12)}")

    def asked(self, problem_id: str) -> list[Birth]:
        return self.ledger.births(
            problem_id,
            device_kind="cpu",
            protocol_id=self.facts.protocol.id,
            stages=["filter", "rl"],
            attempts_per_step=100,
        )

    def plain(self, problem_id: str) -> list[Birth]:
        given = {"problem_id": problem_id, "protocol_id": self.facts.protocol.id}
        return [Birth(**row) for row in self.ledger.sql(PLAIN, given).to_dicts()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_index_gives_the_births_of_the_plain_query_after_any_events(
    tmp_path, facts, seed, monkeypatch
):
    monkeypatch.setattr(exemplar_index, "FEW", 4 if seed % 2 else 500)
    for stage in ("filter", "transfer@x"):  # the second is not asked about
        with Ledger.open(tmp_path) as ledger:
            ledger.begin(stage)
            life = Life(ledger, facts, seed)
            for _ in range(8):
                life.answer(stage)
                life.judge()
            ledger.export()
    num_seen = 0
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        life = Life(ledger, facts, seed + 100)
        things = [life.answer, life.judge, life.review, life.find, life.use]
        for i in range(60):
            life.rule() if i % 20 == 19 else life.rng.choice(things)()
            for problem_id in life.problems if i % 3 else life.problems[:1]:
                found = life.asked(problem_id)
                assert found == life.plain(problem_id), i
                num_seen += len(found)
    assert num_seen > 20


def test_most_questions_are_answered_without_the_plain_query(tmp_path, facts, monkeypatch):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        life = Life(ledger, facts, 0)
        life.asked(life.problems[0])
        monkeypatch.setattr(ledger, "query", None)
        for _ in range(20):
            life.answer()
            life.judge()
            life.asked(life.problems[0])
        assert life.asked(life.problems[0]) == life.plain(life.problems[0]) != []


def test_an_append_that_the_database_refuses_changes_no_birth(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        life = Life(ledger, facts, 1)
        candidate = life.candidates[0]
        ledger.add_verdict(facts.correct(candidate), [])
        before = life.asked(life.problems[0])
        odd = facts.completion("b").model_copy(update={"num_prompt_tokens": 3_000_000_000})
        with pytest.raises(StoreError):
            ledger.add_completion(odd, candidate, None)
        assert life.asked(life.problems[0]) == before == life.plain(life.problems[0])
