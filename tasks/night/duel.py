"""Stage `duel` of a night: challenger and champion answer the same held-out problems.

The problems are new each night: fresh combinations of operations that are reserved for
examinations. Duels choose policies, and a policy chosen on the same few problems night after night
would be fitted to them in the end.

The paired protocol: both answer each problem equally often, and an answer's random numbers are the
same for both. Verdicts are made once and kept in the ledger, as in every stage.
`cudal1.selection.duel` decides what pairs prove, and when to stop.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import polars as pl

from cudal1.candidate import Candidate, Completion
from cudal1.errors import SuiteError
from cudal1.harness.admission import known_references
from cudal1.harness.admission.admission import Check, probe_all
from cudal1.harness.schedule.pools import require_working
from cudal1.ledger import Ledger
from cudal1.ledger.shards import write_parquet
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import generation_prompt
from cudal1.record import content_id
from cudal1.selection.duel import Duel, identical, nights_alpha, verdict_of
from cudal1.selection.reward import speed_reward
from cudal1.services.answers import keep_completion
from cudal1.services.judging import VerdictSource, device_facts, verdict_source
from cudal1.suite import generator
from cudal1.train.policy import Sampler
from tasks.night.night import FOLDER, Night, current_night, write
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main

DUEL = FOLDER / "duel.json"
PAIRS = FOLDER / "duel.parquet"
ROLES = ("champion", "challenger")
COLUMNS = {"problem_id": pl.String, "name": pl.String, **dict.fromkeys(ROLES, pl.Float64)}
"""Columns of a row, one row a problem: each policy's mean reward, rewards capped at
`duel.max_reward`."""
AT_ONCE = 8
"""Problems with answers sampled together, to fill a batch; each problem is judged by itself."""


def fight(stage: Stage) -> Mapping[str, float | int | str]:
    """data/policy/champion and data/policy/challenger → data/nightly/duel.json."""
    section, night = stage.params.duel, current_night()
    alpha = nights_alpha(section.alpha, challenge=night.challenge)
    policies = {role: DATA / "policy" / role for role in ROLES}
    prints = {Sampler.fingerprint(policy) for policy in policies.values()}
    rows: list[dict[str, object]] = []
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        if len(prints) == 1:
            found = identical(alpha=alpha)
        else:
            with verdict_source(ledger, stage.params) as judge:
                found = _Arena(stage, ledger, judge, policies, night).fight(rows, alpha=alpha)
        ledger.export()
    write_parquet(pl.DataFrame(rows, schema=COLUMNS), PAIRS)
    write(DUEL, found)
    numbers = {f"{role}_mean_reward": _mean(rows, role) for role in ROLES if rows}
    return {"night": night.number, "challenge": night.challenge, **found.model_dump(), **numbers}


def _mean(rows: list[dict[str, object]], role: str) -> float:
    return fmean(float(str(row[role])) for row in rows)


@dataclass(frozen=True)
class _Arena:
    """The setting of a duel: stage, ledger, source of verdicts and policies."""

    stage: Stage
    ledger: Ledger
    judge: VerdictSource
    policies: Mapping[str, Path]
    night: Night

    def fight(self, rows: list[dict[str, object]], *, alpha: float) -> Duel:
        """Judge pair after pair until the duel is decided; append a row for each to `rows`."""
        section = self.stage.params.duel
        samplers = {role: Sampler(policy) for role, policy in self.policies.items()}
        pairs: list[float] = []
        with (
            closing(self._problems(samplers["champion"])) as problems,
            progress("problems of the duel", section.num_problems) as advance,
        ):
            while some := list(islice(problems, min(AT_ONCE, section.num_problems - len(pairs)))):
                answers = {role: self._answers(samplers[role], some) for role in ROLES}
                for problem in some:
                    means = self._mean_rewards({role: answers[role][problem.id] for role in ROLES})
                    pairs.append(means["challenger"] - means["champion"])
                    rows.append({"problem_id": problem.id, "name": problem.name, **means})
                    advance(1)
                    found = verdict_of(
                        pairs,
                        alpha=alpha,
                        limit=section.max_reward,
                        is_last=len(pairs) == section.num_problems,
                    )
                    if found is not None:
                        return found
        if not pairs:
            raise SuiteError(
                f"{self.stage.name}: no problem can be judged, or none has a prompt of at most "
                f"{self.stage.params.policy.max_prompt_tokens} tokens; raise "
                "policy.max_prompt_tokens or problems.max_reference_ms"
            )
        found = verdict_of(pairs, alpha=alpha, limit=section.max_reward, is_last=True)
        assert found is not None
        return found

    def _problems(self, sampler: Sampler) -> Generator[Problem]:
        """Yield new held-out problems that can be judged and asked about, as they are needed."""
        params = self.stage.params
        known = {problem.id for problem in admitted_problems()}
        style, facts = params.policy.prompts, device_facts(params)
        drawn = generator.problems(
            # some are known, rejected or too long
            2 * params.duel.num_problems,
            seed=params.duel.seed + self.night.number,
            device_class=params.device,
            split=Split.HELDOUT,
        )
        fitting = [
            problem
            for problem in drawn
            if problem.id not in known
            and sampler.num_tokens(generation_prompt(problem, style=style, facts=facts).as_chat())
            <= params.policy.max_prompt_tokens
        ]
        tried = probe_all(
            fitting,
            max_reference_ms=params.problems.max_reference_ms,
            check=Check(self.judge.protocol, self.judge.device),
            known=known_references.of_this_user(),
        )
        for problem, probe in tried:
            if probe.reason is not None:
                require_working(self.judge.device)  # raises if the device is the reason
            if probe.kill_table is not None:
                self.ledger.add_kill_table(probe.kill_table)
            admission = probe.admission_if_told_apart
            self.ledger.add_problem(problem, admission)
            if admission.admitted:
                yield problem
            else:
                log.info("%s: %s rejected: %s", self.stage.name, problem.key, admission.reason)

    def _answers(
        self, sampler: Sampler, problems: list[Problem]
    ) -> dict[str, list[tuple[Problem, Candidate | None]]]:
        """Return the candidate in each answer to each problem; answers in the ledger are reused."""
        section, policy = self.stage.params.duel, self.stage.params.policy
        facts = device_facts(self.stage.params)
        settings = f"{section.temperature}/{section.top_p}/{policy.max_new_tokens}"
        seed = section.seed + self.night.number
        asked = [
            (problem, generation_prompt(problem, style=policy.prompts, facts=facts), attempt)
            for problem in problems
            for attempt in range(section.num_samples)
        ]
        # the same for both policies, so that they share luck as far as they are alike
        seeds = [
            int(content_id(str(seed), problem.id, str(attempt)), 16)
            for problem, _, attempt in asked
        ]
        ids = [
            content_id(sampler.id, settings, prompt.id, str(drawn))
            for (_, prompt, _), drawn in zip(asked, seeds, strict=True)
        ]
        known = {key: self.ledger.completion(key) for key in ids}
        missing = [i for i, key in enumerate(ids) if known[key] is None]
        made = sampler.sample(
            [asked[i][1].as_chat() for i in missing],
            temperature=section.temperature,
            top_p=section.top_p,
            seed=[seeds[i] for i in missing],
            max_new_tokens=policy.max_new_tokens,
            batch_size=policy.batch_size,
        )
        for i, sampled in zip(missing, made, strict=True):
            problem, prompt, attempt = asked[i]
            known[ids[i]] = Completion(
                id=ids[i],
                stage=self.stage.name,
                provider="policy",
                problem_id=problem.id,
                prompt_id=prompt.id,
                template_id=prompt.template_id,
                attempt=attempt,
                text=sampled.text,
                finish_reason=sampled.finish_reason,
                num_prompt_tokens=sampled.num_prompt_tokens,
                num_completion_tokens=sampled.num_completion_tokens,
            )
        found: dict[str, list[tuple[Problem, Candidate | None]]] = {}
        for (problem, _, _), key in zip(asked, ids, strict=True):
            completion = known[key]
            assert completion is not None
            candidate = keep_completion(self.ledger, completion)
            found.setdefault(problem.id, []).append((problem, candidate))
        return found

    def _mean_rewards(
        self, answers: Mapping[str, list[tuple[Problem, Candidate | None]]]
    ) -> dict[str, float]:
        """Return each policy's mean reward on one problem, rewards capped at `duel.max_reward`.

        Answers to other problems are not judged with these, since the duel may be decided earlier.
        """
        everything = [pair for role in ROLES for pair in answers[role]]
        asked = [(problem, candidate) for problem, candidate in everything if candidate]
        verdicts = {verdict.candidate_id: verdict for verdict in self.judge.judge_all(asked)}
        limit = self.stage.params.duel.max_reward
        return {
            role: fmean(
                min(speed_reward(verdicts[candidate.id]), limit) if candidate else 0.0
                for _, candidate in answers[role]
            )
            for role in ROLES
        }


if __name__ == "__main__":
    main("duel", fight)
