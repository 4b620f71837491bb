"""Make shards of a ledger of any size with the database itself, for `scale` and `storage`.

Two stages, `filter` and `rl`, share the candidates. Half of them are correct and were timed. One in
a hundred was reviewed, and one in ten of those vetoed. Each answer was shown two earlier successes
of its problem. The first candidate of each problem is its `torch.compile`. Ids, texts and noise are
drawn from a hash of the row's number: the same each time.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from cudal1.ledger import schema

NUM_PROBLEMS = 250
SAMPLES_EACH = 200
"""Samples of each correct candidate: 40 quads, and 10 in fresh processes."""
DEVICE, PROTOCOL = "cuda-h100", "00112233445566aa"
STAGES = ("filter", "rl")
_VERDICT_KEY = f"candidate_id, '{DEVICE}' as device_kind, '{PROTOCOL}' as protocol_id"
_UNIFORM = "(hash({0}) % 1000003) / 1000003.0"


def make_shards(folder: Path, *, num_candidates: int, first: int = 0) -> dict[str, int]:
    """Write `folder/shards/STAGE/TABLE.parquet`; return the number of rows of each table.

    Args:
        folder: in which nothing is yet.
        num_candidates: of both stages together.
        first: number of the first candidate; the same number is the same candidate each time.
    """
    connection = duckdb.connect()
    connection.execute("set preserve_insertion_order = true")
    counts: dict[str, int] = {}
    per_stage = num_candidates // len(STAGES)
    for number, stage in enumerate(STAGES):
        shard = folder / "shards" / stage
        shard.mkdir(parents=True)
        _make_facts(connection, first=first + number * per_stage, count=per_stage)
        for table, query in _tables(stage, is_first=number == 0).items():
            path = str(shard / f"{table}.parquet").replace("'", "''")
            connection.execute(
                f"copy ({query}) to '{path}' (format parquet, compression zstd, "
                f"kv_metadata {{cudal1_ledger: '{schema.newest()}'}})"
            )
            found = connection.execute(f"select count(*) from '{path}'").fetchall()
            counts[table] = counts.get(table, 0) + found[0][0]
    connection.close()
    return counts


def _make_facts(connection: duckdb.DuckDBPyConnection, *, first: int, count: int) -> None:
    """Make a row for each candidate, by id, with all that the tables are made of."""
    connection.execute(f"""
        create or replace table facts as
        select row_number() over (order by candidate_id) - 1 as n, *,
               {_UNIFORM.format("candidate_id || 'ok'")} < 0.5 as is_correct,
               exp(0.5 * ({_UNIFORM.format("candidate_id || 'gain'")} - 0.3)) as speedup,
               20 + 500 * {_UNIFORM.format("problem_id")} as base_us
        from (
            select i, md5('candidate' || i)[1:16] as candidate_id,
                   md5('completion' || i)[1:16] as completion_id,
                   md5('problem' || (i % {NUM_PROBLEMS}))[1:16] as problem_id,
                   md5('candidate' || ((i - {NUM_PROBLEMS}) // 2 // {NUM_PROBLEMS} * {NUM_PROBLEMS}
                       + i % {NUM_PROBLEMS}))[1:16] as shown
            from range({first}, {first + count}) t(i)
        ) order by candidate_id
    """)


_TEXT = """list_aggregate(list_transform(range(16),
    lambda k: '    x = x + tl.load(pointers + offsets, mask=mask, other=0.0)  # ' || md5({0} || k)),
    'string_agg', chr(10))"""
"""SQL of a text of about 1.6 KB, of which a third does not compress."""


def _tables(stage: str, *, is_first: bool) -> dict[str, str]:
    """Return the query of each table of a shard."""
    sources = f"""select candidate_id, problem_id, encode({_TEXT.format("candidate_id")}) as source,
                         case when n % 20 = 0 then md5('program' || (n % 5000))[1:16]
                              else candidate_id end as program_id,
                         case when is_correct then ['fusion', 'tiling', 'vector_loads'][:1 + n % 3]
                              else [] end as techniques
                  from facts order by n"""
    tables = {
        "candidates": sources,
        "completions": _completions(stage),
        "verdicts": _verdicts(),
        "timing_samples": _samples(),
        "hack_flags": f"""
            select {_VERDICT_KEY}, 'odd_import' as kind, 'screen' as source, 'line 1' as evidence
            from facts where n % 10 = 0 order by n""",
        "reviews": _reviews(stage),
        "tries": f"""
            select completion_id as request_id, '2026-01-01T00:00:00.000000+00:00' as sent_at,
                   '{stage}' as stage, 'openai' as provider, 'answered' as outcome,
                   0.01 as cost_usd, 0.1 as at_most_usd, null::varchar as said
            from facts where n % 4 = 0 order by n""",
        "rewards": f"""
            select '{stage}' as stage, (i // 64)::integer as step, completion_id,
                   case when is_correct then speedup else 0 end as raw, 0.1 as smoothed
            from facts order by n""",
        "members": f"""
            select '{stage}' as stage, 'completions' as kind, completion_id as key from facts
            union all
            select '{stage}', 'verdicts', concat_ws('/', candidate_id, '{DEVICE}', '{PROTOCOL}')
            from facts order by all""",
    }
    if is_first:
        tables["baselines"] = f"""
            select candidate_id, problem_id, 'compile' as baseline
            from facts where i < {NUM_PROBLEMS} order by n"""
        tables["protocols"] = f"select '{PROTOCOL}' as protocol_id, '{{}}' as content"
        tables["problems"] = f"""
            select md5('problem' || i)[1:16] as problem_id, 'benchmark' as suite,
                   (1 + i % 4)::integer as level, i::integer as number, 'p' || i as name,
                   case when i % 5 = 0 then 'heldout' else 'train' end as split,
                   'cuda' as device_class, '1' as revision,
                   repeat('class Model: ...', 50) as source, true as admitted,
                   null::varchar as rejection
            from range({NUM_PROBLEMS}) t(i)"""
    return tables


def _completions(stage: str) -> str:
    return f"""
        select completion_id, '{stage}' as stage,
               ['openai', 'claude', 'deepseek', 'local'][1 + i % 4] as provider, problem_id,
               md5('prompt' || i)[1:16] as prompt_id, 'template' as template_id,
               (i // 64 * 10000 + i % 64)::integer as attempt,
               encode({_TEXT.format("candidate_id")}) as answer, ''::blob as reasoning,
               null::blob as response, 'stop' as finish_reason, 1000 as num_prompt_tokens,
               500 as num_completion_tokens, null::integer as num_reasoning_tokens,
               0.01 as cost_usd, case when i >= {2 * NUM_PROBLEMS} then [shown] else [] end
               as exemplar_ids, (i % 10)::integer as island, candidate_id,
               null::varchar as no_candidate_reason,
               case when i >= {2 * NUM_PROBLEMS} then [1.1::double] else [] end
               as exemplar_scores
        from facts order by n"""


def _verdicts() -> str:
    timed = "case when is_correct then {} end"
    return f"""
        select {_VERDICT_KEY}, problem_id, 'cuda:0' as device_id,
               case when is_correct then 'correct' else ['crashed', 'incorrect', 'hacked',
                    'no_build'][1 + i % 4] end as status,
               case when not is_correct then 'ValueError: no' end as reason,
               {timed.format("'eager'")} as baseline, {timed.format("speedup * 1.01")} as speedup,
               {timed.format("speedup")} as certified, {timed.format("0.01")} as alpha,
               {timed.format("speedup")} as lower, {timed.format("speedup * 1.02")} as upper,
               null::varchar as doubt, {timed.format("40")} as num_quads,
               {timed.format("list_transform(range(7), lambda k: speedup)")} as bucket_medians,
               {timed.format("0.0001")} as bucket_variance, {timed.format("true")} as is_stable,
               {timed.format("true")} as is_confirmed, null::varchar as confirmed_on,
               {timed.format("base_us")} as reference_us,
               {timed.format("base_us / speedup")} as candidate_us, null::double as floor_us,
               5 as num_inputs, 2 as correctness_stage, 'tf32' as precision,
               0.001 as max_relative_l2, 0.5 as max_scaled_error, null::varchar as first_mismatch,
               'off' as second_opinion, ['rlimits', 'own_pids'] as sandbox,
               1 + {_UNIFORM.format("n")} as judge_s,
               strftime(timestamp '2026-01-01' + to_seconds(i * 20), '%Y-%m-%dT%H:%M:%SZ')
               as judged_at, '{{"candidate_id": "' || candidate_id || '", "of": "'
               || repeat(problem_id, 20) || '"}}' as content
        from facts order by n"""


def _samples() -> str:
    """Return SQL of bursts in their order; the noise is one-sided, as that of real bursts is."""
    noise = _UNIFORM.format("f.n * 1000 + k")
    return f"""
        select {_VERDICT_KEY}, (k // 160)::integer as session, (k % 160 // 4)::integer as quad,
               (k % 4)::integer as position,
               case when k % 4 in (0, 3) then 'reference' else 'candidate' end as role,
               8 as num_calls, net_us * 8 + 3 as burst_us, net_us
        from (
            select candidate_id, k,
                   case when k % 4 in (0, 3) then base_us else base_us / speedup end
                   * (1 + 0.02 * {noise} * {noise}) as net_us
            from range((select count(*) from facts where is_correct) * {SAMPLES_EACH}) t(j)
            join (
                select row_number() over (order by n) - 1 as place, * from facts where is_correct
            ) f on f.place = j // {SAMPLES_EACH}, lateral (select j % {SAMPLES_EACH} as k)
        )"""


def _reviews(stage: str) -> str:
    return f"""
        select md5('review' || i)[1:16] as review_id, candidate_id, 'code' || i as code_id,
               '{stage}' as stage, 'reviewer' as provider, 'reviewer' as reviewer_id, problem_id,
               'prompt' as prompt_id, 'template' as template_id, 'above 3x' as trigger,
               []::varchar[] as case_ids, 0 as attempt, 'no'::blob as answer, ''::blob as reasoning,
               null::blob as response, 'stop' as finish_reason, 100 as num_prompt_tokens,
               10 as num_completion_tokens, null::integer as num_reasoning_tokens,
               0.001 as cost_usd, n % 1000 = 0 as is_cheat, 'cached_output' as kind,
               'memo' as quote, 'keeps answers' as evidence
        from facts where n % 100 = 0 order by n"""
