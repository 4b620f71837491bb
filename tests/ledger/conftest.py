"""Fixtures: a small ledger's worth of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.baseline import Baseline
from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.hack_case import CaseOrigin, HackCase
from cudal1.kill_table import KillTable, Mutant
from cudal1.ledger import Ledger
from cudal1.measurement import Measurement, Role, TimingSample
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule
from cudal1.review import Opinion, Review, Ruling
from cudal1.verdict import Correctness, FlagSource, HackFlag, Properties, Status, Verdict


class Facts:
    """A maker of records that fit each other."""

    device_kind = "cpu"
    protocol = EvalProtocol(
        correctness_stages=(1, 2),
        contract=Contract.KERNELBENCH,
        mode=Mode.CONSTRUCTED,
        precision=PrecisionClass.STRICT,
        timing=True,
        rule=Rule.CERTIFIED,
        window_s=None,
        burst_us=100,
        max_burst_calls=8,
        ring_bytes=1024,
        min_quads=7,
        max_quads=20,
        alpha=0.01,
        certify_within=0.1,
        max_claim=9.0,
        dead_zone=1.01,
        num_buckets=7,
        max_bucket_variance=0.005,
        confirm_above=3.0,
        confirm_below=1.0,
        give_up_alpha=0.1,
        confirm_above_record=2,
        confirm_within=0.1,
        slow_factor=1000,
        start_timeout_s=1,
        build_timeout_s=1,
        call_timeout_s=1,
        memory_bytes=1024,
        seed=0,
    )

    def problem(self, name: str = "softmax", split: Split = Split.TRAIN) -> Problem:
        return Problem(
            suite="cudal1",
            level=1,
            number=1,
            name=name,
            split=split,
            device_class=DeviceClass.CPU,
            revision="1",
            source=f"# {name}\n",
        )

    def candidate(self, source: str = "class ModelNew: ...") -> Candidate:
        return Candidate(problem_id=self.problem().id, source=source)

    def completion(
        self,
        key: str,
        *,
        text: str = "answer",
        provider: str = "replay",
        stage: str = "filter",
        finish_reason: str = "stop",
        shown: tuple[str, ...] = (),
    ) -> Completion:
        return Completion(
            id=key,
            stage=stage,
            provider=provider,
            problem_id=self.problem().id,
            prompt_id="prompt",
            template_id="template",
            attempt=0,
            text=text,
            finish_reason=finish_reason,
            cost_usd=0.25,
            num_prompt_tokens=10,
            num_completion_tokens=20,
            exemplar_ids=shown,
        )

    def correct(
        self, candidate: Candidate, certified: float = 1.1, seen: Properties | None = None
    ) -> Verdict:
        return Verdict(
            problem_id=candidate.problem_id,
            candidate_id=candidate.id,
            protocol_id=self.protocol.id,
            device_kind=self.device_kind,
            device_id="cpu0",
            status=Status.CORRECT,
            flags=(HackFlag(kind="odd_import", source=FlagSource.SCREEN, evidence="line 1"),),
            correctness=Correctness(num_inputs=2, stage=2, precision=PrecisionClass.STRICT),
            measurement=Measurement(
                baseline=Baseline.EAGER,
                speedup=certified + 0.05,
                certified=certified,
                alpha=0.01,
                num_quads=7,
                bucket_medians=(1.1,) * 7,
                bucket_variance=0.0,
                is_stable=True,
                reference_us=20.0,
                candidate_us=18.0,
            ),
            properties=seen,
            sandbox=("rlimit",),
            judged_at="2026-01-01T00:00:00Z",
            judge_s=0.5,
        )

    def failed(self, candidate: Candidate, reason: str = "ValueError: no") -> Verdict:
        return Verdict(
            problem_id=candidate.problem_id,
            candidate_id=candidate.id,
            protocol_id=self.protocol.id,
            device_kind=self.device_kind,
            device_id="cpu0",
            status=Status.CRASHED,
            reason=reason,
            judged_at="2026-01-01T00:00:00Z",
            judge_s=0.1,
        )

    def samples(self, count: int = 8) -> list[TimingSample]:
        return [
            TimingSample(
                session=0,
                quad=i // 4,
                position=i % 4,
                role=Role.REFERENCE if i % 4 in (0, 3) else Role.CANDIDATE,
                num_calls=3,
                burst_us=60.0 + i,
                net_us=20.0 + i,
            )
            for i in range(count)
        ]

    def kill_table(self, *names: str) -> KillTable:
        """Return a kill table: each mutant is killed at once but the last, which does not apply."""
        killed = [Mutant(name=n, killed=True, family="own", num_inputs=1) for n in names[:-1]]
        return KillTable(
            problem_id=self.problem().id,
            precision=PrecisionClass.STRICT,
            mutants=(*killed, Mutant(name=names[-1], killed=None)),
        )

    def fill(self, ledger: Ledger) -> None:
        """Add two providers, a chain of two exemplars, a crash, and an answer without source."""
        for name, split in (("softmax", Split.TRAIN), ("gelu", Split.HELDOUT)):
            problem = self.problem(name, split)
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        ledger.add_kill_table(self.kill_table("zeros", "stale", "shuffled"))
        ledger.add_protocol(self.protocol)
        first, second, third = (self.candidate(f"class ModelNew: x = {i}") for i in range(3))
        broken = self.candidate("class ModelNew: x = y")
        ledger.add_completion(self.completion("a"), first, None)
        ledger.add_completion(self.completion("b", shown=(first.id,)), second, None)
        ledger.add_completion(
            self.completion("c", provider="openai", shown=(second.id, first.id)), third, None
        )
        ledger.add_completion(self.completion("d", provider="openai"), broken, None)
        ledger.add_completion(self.completion("e", provider="openai"), None, "no code block")
        for candidate, certified in ((first, 1.1), (second, 1.5), (third, 2.0)):
            ledger.add_verdict(self.correct(candidate, certified), self.samples())
        ledger.add_verdict(self.failed(broken), [])
        for attempt in self.tries():
            ledger.add_try(attempt)
        ledger.add_case(self.case)
        ledger.add_baseline(broken, Baseline.CUDA_GRAPH)
        ledger.add_review(self.review(third, is_cheat=False))
        ledger.add_ruling(self.ruling(broken))
        ledger.add_rewards(1, [("a", 1.1, 0.5), ("d", 0.0, -0.5)])
        ledger.add_steps(1, {"loss": 2.0, "reward": 0.5})
        ledger.add_steps(2, {"loss": 1.0, "reward": 0.7})

    case = HackCase(
        kind="cached_output",
        source="memo = {}\n",
        evidence="keeps answers",
        origin=CaseOrigin.SHIPPED,
    )

    def tries(self) -> list[Try]:
        """Return four paid tries of openai, one of them in doubt, and one refused try."""

        def made(key: str, second: int, **changes: object) -> Try:
            values = {
                "request_id": key,
                "sent_at": f"2026-01-01T00:00:0{second}.000000+00:00",
                "stage": "filter",
                "provider": "openai",
                "outcome": "answered",
                "cost_usd": 0.25,
                "at_most_usd": 1.0,
            }
            return Try.model_validate({**values, **changes})

        return [
            made("c", 0, outcome="refused", cost_usd=0.0, said="HTTP 429"),
            made("c", 1),
            made("d", 2),
            made("e", 3),
            made("z", 4, outcome="sent", cost_usd=None),
        ]

    def review(
        self, candidate: Candidate, *, is_cheat: bool | None = True, code: str | None = None
    ) -> Review:
        opinion = Opinion(
            is_cheat=bool(is_cheat), kind="cached_output", quote="memo[x]", evidence="keeps answers"
        )
        return Review(
            completion=self.completion(f"review-{candidate.id}", provider="reviewer"),
            candidate_id=candidate.id,
            code_id=code or f"code of {candidate.id}",
            reviewer_id="reviewer",
            trigger="above 3x",
            case_ids=(self.case.id,),
            opinion=None if is_cheat is None else opinion,
        )

    def ruling(
        self,
        candidate: Candidate,
        *,
        is_cheat: bool = True,
        at: str = "2026-01-01T00:00:00Z",
        code: str | None = None,
    ) -> Ruling:
        return Ruling(
            candidate_id=candidate.id,
            code_id=code or f"code of {candidate.id}",
            is_cheat=is_cheat,
            kind="cached_output",
            evidence="keeps answers",
            ruled_at=at,
        )

    def known(self, ledger: Ledger, candidate: Candidate) -> Verdict | None:
        return ledger.verdict(candidate, device_kind=self.device_kind, protocol_id=self.protocol.id)

    def content(self, ledger: Ledger) -> dict[str, list[dict[str, object]]]:
        """Return every row of every table."""
        tables = (
            "problems",
            "mutants",
            "completions",
            "candidates",
            "protocols",
            "verdicts",
            "timing_samples",
            "hack_flags",
            "tries",
            "reviews",
            "rulings",
            "hack_cases",
            "baselines",
            "rewards",
            "training_steps",
            "members",
        )
        return {table: ledger.sql(f"from {table} order by all").to_dicts() for table in tables}


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def ledger(tmp_path, facts):
    """Open a ledger in the middle of a stage."""
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        yield ledger


@pytest.fixture
def filled(tmp_path, facts) -> Path:
    """Make a ledger with an exported stage and a killed one."""
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.export()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        ledger.add_completion(facts.completion("z", stage="rl"), facts.candidate("z"), None)
        ledger.add_verdict(facts.correct(facts.candidate("z"), 3.0), facts.samples(30))
        ledger.add_rewards(3, [("z", 3.0, 1.0)])
        assert ledger.completion("a") is not None
    return tmp_path
