-- What is asked most: each view says in its comment what it is. Made anew whenever this file changes.
-- Views have texts as text and times as timestamps, UTC; tables have bytes and ISO 8601, which keep everything.

create or replace macro author(provider, stage) as
    case when provider = 'policy' then 'policy (' || stage || ')' else provider end;
comment on macro author is 'author(provider, stage): the provider, or a policy by the stage that asked it';

create or replace macro readable(bytes) as coalesce(try(decode(bytes)), bytes::varchar);
comment on macro readable is 'readable(bytes): UTF-8 bytes as text; bytes that are none are written \xAA';

create or replace macro kind_of(reason) as
    case when reason similar to 'an output of (torch|type).*' then 'an output of another type or shape'
         when reason like 'correct only in the looser%' then 'correct only in a looser precision class'
         else trim(coalesce(nullif(regexp_extract(reason, '^\w+(Error|Exception)\b'), ''),
              regexp_replace(regexp_extract(reason, '^[^:(]*'), '[0-9]+', 'N', 'g'))) end;
comment on macro kind_of is 'kind_of(reason): the name of an exception, or what stands before a colon or a bracket, with N for numbers';

create or replace view words as
    select candidate_id, is_cheat, kind, evidence, ruled_at::timestamp as ruled_at from rulings
    union all
    select r.candidate_id, arg_max(p.is_cheat, p.ruled_at), arg_max(p.kind, p.ruled_at),
           arg_max(p.evidence, p.ruled_at), max(p.ruled_at)::timestamp
    from (select distinct candidate_id, code_id from reviews) r join rulings p using (code_id)
    where r.candidate_id not in (select candidate_id from rulings)
    group by r.candidate_id;
comment on view words is 'A person''s word on each candidate: a ruling on itself, else the latest on the same code';

create or replace view vetoes as
    select candidate_id, kind, evidence, 'person' as source from words where is_cheat
    union all
    select candidate_id, arg_max(kind, review_id), arg_max(evidence, review_id), 'reviewer' from reviews
    where is_cheat and candidate_id not in (select candidate_id from words)
    group by candidate_id;
comment on view vetoes is 'Candidates in which a person or the reviewer saw a cheat that the harness had not';

create or replace view judged as
    select v.* replace (
        v.judged_at::timestamp as judged_at,
        case when v.status = 'correct' and veto.kind is not null then 'hacked' else v.status end as status,
        case when v.status = 'correct' and veto.kind is not null
             then veto.kind || ': ' || veto.evidence else v.reason end as reason,
        case when veto.kind is null then v.speedup end as speedup,
        case when veto.kind is null then v.certified end as certified,
        case when veto.kind is null then v.lower end as lower,
        case when veto.kind is null then v.upper end as upper,
        case when veto.kind is null then v.follows_weights end as follows_weights,
        case when veto.kind is null then v.fresh_outputs end as fresh_outputs,
        case when veto.kind is null then v.leaves_inputs end as leaves_inputs,
        case when veto.kind is null then v.draws_weights end as draws_weights,
        case when veto.kind is null then v.deterministic end as deterministic,
        case when veto.kind is null then v.needs_compiler end as needs_compiler,
        case when veto.kind is null then v.copies_reference end as copies_reference),
        veto.source as vetoed_by
    from verdicts v left join vetoes veto using (candidate_id);
comment on view judged is 'Verdicts with vetoes applied. A candidate has a row for each kind of device and protocol, so it may count twice here: final_verdicts has one row each. speedup: an estimate; certified: the speedup that is proven at least (below 1: at most), 1 where no difference is shown, null where nothing was timed; lower, upper: bounds from the first measurement; doubt: what made certified lower than that, such as a second measurement (again)';

create or replace view final_verdicts as
    select v.*
    from judged v left join protocols p using (protocol_id)
    left join (select distinct key from members where stage like 'transfer@%' and kind = 'verdicts') again
    on again.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
    qualify row_number() over (
        partition by v.candidate_id
        order by again.key is null desc, coalesce(p.content ->> '$.timing', '') = 'true' desc,
                 v.judged_at desc, v.device_kind, v.protocol_id
    ) = 1;
comment on view final_verdicts is 'One verdict for each candidate: under a protocol that times, if there is one, and the latest of these. Count verdicts here. References and baselines are among them: answers has answers only';

create or replace view flags as
    select f.candidate_id, f.device_kind, f.protocol_id, f.kind, f.source, f.evidence,
           f.source = 'screen' as is_advisory, v.status,
           coalesce(v.status = 'hacked' and f.source <> 'screen', false) as is_decisive
    from hack_flags f left join judged v using (candidate_id, device_kind, protocol_id)
    union all
    select v.candidate_id, v.device_kind, v.protocol_id, veto.kind, veto.source, veto.evidence, false, 'hacked',
           true
    from verdicts v join vetoes veto using (candidate_id) where v.status = 'correct';
comment on view flags is 'Signs of cheating, one row each: a candidate may have several. source: screen (read in the source; is_advisory, decides nothing), guard or timing (seen by the harness), reviewer, person. is_decisive: it made the verdict hacked. Count cheats as count(distinct candidate_id) where is_decisive. What a person has cleared is no veto';

create or replace view cases as
    select case_id, null as candidate_id, kind, readable(source) as source, evidence, origin from hack_cases
    union all
    select r.candidate_id, r.candidate_id, r.kind, readable(c.source), r.evidence, 'confirmed'
    from rulings r join candidates c using (candidate_id) where r.is_cheat;
comment on view cases is 'Cheats that the reviewer is shown the most similar of: those that ship, and those that people confirmed here';

create or replace view successes as
    select v.*, p.suite, p.level, p.name, p.split
    from judged v join problems p using (problem_id)
    where v.status = 'correct';
comment on view successes is 'The rows of judged that are correct, with their problem';

create or replace view ranking as
    with authors as (
        select candidate_id, list(distinct author(provider, stage) order by author(provider, stage)) as authors
        from completions where candidate_id is not null group by candidate_id
    )
    select v.certified, p.level, p.name, authors, v.candidate_id, v.problem_id, p.suite, p.split,
           v.device_kind, v.protocol_id, v.speedup, v.lower, v.upper, v.alpha, v.reference_us, v.candidate_us
    from judged v join authors using (candidate_id) join problems p on p.problem_id = v.problem_id
    where v.status = 'correct' and v.certified is not null
    and not exists (
        select 1 from members m where m.stage like 'transfer@%' and m.kind = 'verdicts'
        and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
    order by v.certified desc, p.suite, p.level, p.name, v.candidate_id;
comment on view ranking is 'Each correct and timed candidate that somebody answered with, and its authors, a list of providers and ''policy (STAGE)'': unnest(authors). References, baselines and what transfer measured again are left out. The largest certified speedup first';

create or replace view best as
    with winners as ( -- first, so that few candidates' authors are looked for
        select problem_id, device_kind, protocol_id, max(certified) as certified,
               arg_max(candidate_id, certified) as candidate_id
        from judged v where status = 'correct' and certified is not null
        and candidate_id in (select candidate_id from completions)
        and not exists (
            select 1 from members m where m.stage like 'transfer@%' and m.kind = 'verdicts'
            and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
        group by problem_id, device_kind, protocol_id
    ), authors as (
        select candidate_id, list(distinct author(provider, stage) order by author(provider, stage)) as authors
        from completions semi join winners using (candidate_id) group by candidate_id
    )
    select w.problem_id, p.suite, p.level, p.name, p.split, w.device_kind, w.protocol_id, w.certified,
           w.candidate_id, a.authors, v.speedup, v.lower, v.upper, v.alpha, v.reference_us, v.candidate_us
    from winners w join problems p using (problem_id) join authors a using (candidate_id)
    join verdicts v using (candidate_id, device_kind, protocol_id)
    order by w.certified desc, p.suite, p.level, p.name;
comment on view best is 'The best certified speedup of each problem, the first of it in ranking, with candidate and authors; a problem that no answer solved is absent. The largest first';

create or replace view judging as
    select stage, count(*) as num_verdicts, count(*) filter (status = 'correct') as num_correct,
           count(*) filter (status = 'hacked') as num_hacked, num_correct / num_verdicts as correct_rate,
           sum(judge_s) as judge_s, count(*) filter (is_own) as num_own,
           coalesce(sum(judge_s) filter (is_own), 0) as own_judge_s,
           list(distinct protocol_id order by protocol_id) as protocol_ids
    from (
        select m.stage, v.status, v.judge_s, v.protocol_id, exists (
            select 1 from runs r where r.stage = m.stage
            and v.judged_at between date_trunc('second', r.started_at::timestamp)
                and coalesce(r.ended_at::timestamp, v.judged_at)
        ) as is_own
        from members m join judged v
        on m.kind = 'verdicts' and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
    ) group by stage order by stage;
comment on view judging is 'How many verdicts each stage used, how many are correct, and seconds of judging (judge_s); stages share verdicts, so do not add these up, but own_judge_s. All kinds of candidates, references and second measurements too. num_own, own_judge_s: what it judged itself, and no earlier stage; 0 where the times of runs are not known. protocol_ids: the protocols of its verdicts';

create or replace view replacements as
    select problem_id, suite, level, name, split, device_kind, protocol_id, certified, candidate_id,
           follows_weights, fresh_outputs, leaves_inputs
    from successes
    where certified > 1 and fresh_outputs and follows_weights is not false and leaves_inputs is not false
      and candidate_id not in (
          select candidate_id from baselines anti join completions using (candidate_id))
    order by suite, level, name, certified desc;
comment on view replacements is 'Candidates that are correct, certified to be faster, and could replace their module in a program: none was seen to ignore weights that are loaded by name, to overwrite an output, or to write to its inputs; baselines that are no answer are left out';

create or replace view techniques as
    select unnest(c.techniques) as technique, v.problem_id, v.suite, v.level, v.name, v.split,
           v.device_kind, v.protocol_id, v.certified, v.candidate_id
    from ranking v join candidates c using (candidate_id);
comment on view techniques is 'What each candidate of ranking does that its reference does not, a row for each technique: kinds of kernels, fusion, algebra, layout, precision and more. One in which none is known has no row';

create or replace view baseline_results as
    select b.baseline, b.problem_id, p.suite, p.level, p.name, p.split, v.device_kind, v.protocol_id,
           b.candidate_id, v.status, v.reason, v.speedup, v.certified,
           greatest(v.speedup, coalesce(v.upper, list_max(v.bucket_medians))) as at_most
    from baselines b join judged v using (candidate_id) join problems p on p.problem_id = b.problem_id
    order by b.baseline, p.suite, p.level, p.name;
comment on view baseline_results is 'What each other way of running the reference has over the eager one; at_most: read upwards, which candidates are held against';

create or replace view over_baselines as
    select v.problem_id, b.suite, b.level, b.name, b.split, v.candidate_id, v.device_kind,
           v.protocol_id, b.baseline, v.certified / b.at_most as certified_over
    from judged v join baseline_results b using (problem_id, device_kind, protocol_id)
    where v.status = 'correct' and v.certified is not null
      and b.status = 'correct' and b.at_most is not null
      and v.candidate_id not in (
          select candidate_id from baselines anti join completions using (candidate_id))
    order by b.baseline, certified_over desc;
comment on view over_baselines is 'The certified speedup of each success over each other way of running the reference (baseline; compile is torch.compile) that was judged on the same device under the same protocol: over eager, divided by what the baseline has at most';

create or replace view outcomes as
    select used.stage, c.completion_id, c.provider, author(c.provider, c.stage) as author, c.problem_id, p.level, p.name, p.split,
           c.attempt, c.cost_usd, c.num_prompt_tokens, c.num_completion_tokens, c.candidate_id,
           case when c.candidate_id is null then 'no_source' else coalesce(v.status, 'not_judged') end
               as outcome,
           v.reason, kind_of(v.reason) as reason_kind, v.speedup, v.certified, v.device_kind, v.protocol_id
    from members used
    join completions c on used.kind = 'completions' and c.completion_id = used.key
    join problems p using (problem_id)
    left join (
        select m.stage as judged_in, v.* from members m join judged v
        on m.kind = 'verdicts' and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
    ) v on v.judged_in = used.stage and v.candidate_id = c.candidate_id
    where c.finish_reason <> 'exhausted';
comment on view outcomes is 'What became of each answer in each stage that used it, by that stage''s own verdict. Several stages use the same answers, so name a stage, or count answers in answers. outcome: correct, no_build, crashed, timed_out, incorrect, hacked, invalid, not_judged or no_source; reason: free text; reason_kind: the same without numbers and details, to group by; certified: null where the stage did not time, so take speedups from ranking. report and transfer use no answers: see judging';

create or replace view exemplar_uses as
    select completion_id, problem_id, unnest(range(1, len(exemplar_ids) + 1)) as position,
           unnest(exemplar_ids) as candidate_id
    from completions;
comment on view exemplar_uses is 'Which earlier candidates were shown in the prompt of an answer, by position from 1';

create or replace view copies as
    with copied as (
        select completion_id
        from (select completion_id, candidate_id as own, unnest(exemplar_ids) as shown from completions
              where len(exemplar_scores) > 0)
        join candidates a on a.candidate_id = own join candidates b on b.candidate_id = shown
        where coalesce(a.program_id, a.candidate_id) = coalesce(b.program_id, b.candidate_id)
    )
    select completion_id, list_max(exemplar_scores) as best_shown,
           completion_id in (from copied) as is_copy
    from completions where len(exemplar_scores) > 0;
comment on view copies is 'Of each answer to a prompt with exemplars, and of no other: the best score that the prompt showed; is_copy: it is an exemplar''s program, names and layout aside. By stage: progress has it, too';

create or replace view progress as
    select o.stage, o.completion_id, o.provider, o.problem_id, o.level, o.name, o.split, o.attempt,
           o.candidate_id, o.outcome, o.device_kind, o.protocol_id,
           case when o.outcome = 'correct' then coalesce(o.certified, 0) else 0 end as reward,
           best_shown, is_copy, not is_copy and reward >= 1.05 * greatest(best_shown, 1) as is_progress
    from outcomes o join copies using (completion_id);
comment on view progress is 'What became of each answer to a prompt with exemplars: its certified speedup (reward; a failure is 0) beside that of the best exemplar shown; is_progress: it is no copy (copies), and faster by 5 % or more than the best one, and than the reference. Answers without exemplars are absent';

create or replace view success as
    with answers as ( -- an answer may have a verdict of several protocols in one stage
        select stage, any_value(provider) as provider, any_value(split) as split,
               bool_or(outcome <> 'no_source') as has_candidate,
               bool_or(outcome not in ('no_source', 'not_judged', 'no_build')) as is_built,
               bool_or(outcome = 'correct') as is_correct,
               max(certified) filter (outcome = 'correct') as certified
        from outcomes group by stage, completion_id
    )
    select stage, provider, split, count(*) as num_answers,
           count(*) filter (has_candidate) as num_candidates, count(*) filter (is_built) as num_built,
           count(*) filter (is_correct) as num_correct, num_correct / num_answers as success_rate,
           avg(certified) as mean_certified, coalesce(sum(certified), 0) / num_answers as mean_reward
    from answers group by stage, provider, split order by stage, provider, split;
comment on view success is 'How often the answers of each provider (''policy'' is what is trained) succeed in each stage, by split: ''train'' or ''heldout''. Stages in their order: policy (before any training), generate@PROVIDER and filter (teachers), sft, selfsup@ROUND, rl, search@METHOD; sft, selfsup@ROUND and rl with heldout are the marks of the policy after that stage. By the stage''s own verdicts; filter has the answers of generate@PROVIDER again. mean_reward: of certified speedups, a failure counts as 0; 0 where the stage did not time, as in generate@PROVIDER';

create or replace view leaderboard as
    select provider, stage, count(*) as num_problems, count(*) filter (top > 1.01) as num_faster,
           exp(avg(ln(greatest(top, 1)))) as geometric_mean, max(top) as best
    from (
        select provider, stage, problem_id, max(certified) as top
        from outcomes where outcome = 'correct' and certified is not null group by all
    ) group by provider, stage order by geometric_mean desc, provider, stage;
comment on view leaderboard is 'Who found the most and the fastest: of each problem''s best certified speedup, how many above 1.01, geometric mean (none counts below 1) and best. The largest mean first';

create or replace view hack_rate as
    select judged_at::date as day, device_kind, count(*) as num_judged,
           count(*) filter (status = 'hacked') as num_hacked,
           count(*) filter (status = 'hacked' and vetoed_by is not null) as num_vetoed,
           num_hacked / num_judged as hack_rate
    from judged group by all order by day, device_kind;
comment on view hack_rate is 'Which share of the verdicts of each day (UTC) is of a cheat; num_vetoed: of those, seen by the reviewer or a person only';

create or replace view hack_rate_by_step as
    select r.stage, r.step, count(*) as num_answers, count(c.candidate_id) as num_candidates,
           count(*) filter (c.candidate_id in (select candidate_id from judged where status = 'hacked'))
               as num_hacked,
           num_hacked / num_answers as hack_rate
    from rewards r join completions c using (completion_id) group by r.stage, r.step
    order by r.stage, r.step;
comment on view hack_rate_by_step is 'Which share of the answers of each training step cheats';

create or replace view best_by_step as
    select stage, problem_id, step, max(top) over (
               partition by stage, problem_id order by step
           ) as best_speedup
    from (
        select r.stage, c.problem_id, r.step, max(case when veto.kind is null then r.raw else 0 end) as top
        from rewards r join completions c using (completion_id) left join vetoes veto using (candidate_id)
        group by all
    ) order by stage, problem_id, step;
comment on view best_by_step is 'The best certified speedup that the answers of a training stage had earned on each problem up to each step that answered it, but for those vetoed since; 0: none has succeeded';

create or replace view rises as
    from best_by_step
    qualify best_speedup > lag(best_speedup, 1, 0) over (partition by stage, problem_id order by step)
    order by stage, step, problem_id;
comment on view rises is 'Which steps of a training stage raised the best certified speedup of a problem, and to what';

create or replace view null_tests as
    select p.suite, p.level, p.number, p.name, v.device_kind, v.protocol_id, v.candidate_id, v.status,
           v.speedup, v.certified, v.lower, v.upper, v.num_quads, v.bucket_variance,
           v.certified > 1.01 as is_false_gain
    from (
        -- the name that cudal1.record.content_id gives to the problem's null_source
        select *, encode(
                   regexp_replace(source, '\bModel\b', 'ModelNew', 'g') || e'\nassert "null test"\n'
               ) as null_source,
               unhex(printf('%016x', strlen(problem_id))) || encode(problem_id)
               || unhex(printf('%016x', octet_length(null_source))) || null_source as named
        from problems
    ) p join judged v on v.candidate_id = sha256(p.named)[:16]
    order by p.suite, p.level, p.number, v.device_kind, v.protocol_id;
comment on view null_tests is 'A/A: verdicts on references that were judged as candidates for themselves, and must gain nothing';

create or replace view reliability as
    with spreads as (
        select device_kind, protocol_id, count(distinct candidate_id) as num_measured,
               quantile_cont(iqr_us / nullif(median_us, 0), 0.5) as median_spread,
               quantile_cont(iqr_us / nullif(median_us, 0), 0.95) as p95_spread
        from timing_spreads where session = 0 and role <> 'empty' group by all
    ), repeats as (
        select device_kind, protocol_id, count(again) as num_repeated,
               quantile_cont(abs(ln(again / first)), 0.5) as median_repeat,
               quantile_cont(abs(ln(again / first)), 0.95) as p95_repeat
        from (
            select device_kind, protocol_id, max(median_us) filter (session = 0) as first,
                   max(median_us) filter (session = 1) as again
            from timing_spreads where role = 'reference' group by candidate_id, device_kind, protocol_id
        ) group by all
    ), nulls as (
        select device_kind, protocol_id, count(*) as num_null_tests,
               count(*) filter (is_false_gain) as num_false_gains,
               min(speedup) as null_lowest, max(speedup) as null_highest
        from null_tests group by all
    )
    select device_kind, protocol_id, num_measured, median_spread, p95_spread, num_repeated,
           median_repeat, p95_repeat, coalesce(num_null_tests, 0) as num_null_tests,
           coalesce(num_false_gains, 0) as num_false_gains, null_lowest, null_highest
    from spreads left join repeats using (device_kind, protocol_id)
    left join nulls using (device_kind, protocol_id)
    order by device_kind, protocol_id;
comment on view reliability is 'How far to trust times: spread (interquartile range over median of the bursts of one measurement), repeat (how far a reference''s median moves in fresh processes, as a logarithm), A/A (what references gained against themselves; null_lowest and null_highest are estimates)';

create or replace macro lineage(of_candidate) as table
    with recursive shown as materialized ( -- once for all generations
        select candidate_id, exemplar_ids from completions
        where candidate_id is not null and len(exemplar_ids) > 0
    ), ancestors(candidate_id, shown_to, generation) as (
        select of_candidate::varchar, null::varchar, 0
        union
        select unnest(c.exemplar_ids), c.candidate_id, a.generation + 1
        from ancestors a join shown c on c.candidate_id = a.candidate_id
        where a.generation < 50
    ), found as (
        select candidate_id, min(generation) as generation,
               list(distinct shown_to order by shown_to) filter (shown_to is not null) as shown_to
        from ancestors group by candidate_id
    )
    select f.generation, f.candidate_id, coalesce(any_value(f.shown_to), []) as shown_to,
           list(distinct author(c.provider, c.stage) order by author(c.provider, c.stage))
               filter (c.provider is not null) as authors,
           max(v.certified) as certified
    from found f left join completions c using (candidate_id) left join judged v using (candidate_id)
    group by f.generation, f.candidate_id order by f.generation, f.candidate_id;
comment on macro table lineage is 'lineage(''ID''): from which earlier candidates a candidate descends through exemplars, how many generations back, and to whose authors each was shown';

create or replace view cost as
    with answered as (
        select provider, count(*) as num_answers, sum(num_prompt_tokens)::bigint as num_prompt_tokens,
               sum(num_completion_tokens)::bigint as num_completion_tokens,
               count(*) filter (candidate_id in (select candidate_id from judged where status = 'correct'))
                   as num_correct
        from completions where finish_reason <> 'exhausted' and not starts_with(finish_reason, 'error: ')
        group by provider
        union all
        select provider, count(*), sum(num_prompt_tokens)::bigint, sum(num_completion_tokens)::bigint, null
        from reviews where finish_reason <> 'repeated' and not starts_with(finish_reason, 'error: ')
        group by provider
    ), billed as (
        select provider, count(*) as num_tries, coalesce(sum(cost_usd), 0) as cost_usd,
               coalesce(sum(at_most_usd) filter (cost_usd is null), 0) as in_doubt_usd,
               count(*) filter (cost_usd is null) as num_in_doubt
        from tries group by provider
    )
    select provider, coalesce(num_answers, 0) as num_answers, num_prompt_tokens, num_completion_tokens,
           coalesce(num_tries, 0) as num_tries, coalesce(cost_usd, 0) as cost_usd,
           coalesce(num_in_doubt, 0) as num_in_doubt, coalesce(in_doubt_usd, 0) as in_doubt_usd,
           coalesce(cost_usd, 0) / nullif(num_correct, 0) as usd_per_correct
    from answered full join billed using (provider) order by cost_usd desc, provider;
comment on view cost is 'What each provider''s answers cost, how much of the bill is in doubt, and what a correct answer costs';

create or replace view providers as
    select provider, stages, num_answers, num_failed, num_exhausted, first_try_at, last_try_at
    from (
        select provider, list(distinct stage order by stage) as stages,
               count(*) filter (finish_reason <> 'exhausted' and not has_failed) as num_answers,
               count(*) filter (has_failed) as num_failed,
               count(*) filter (finish_reason = 'exhausted') as num_exhausted
        from (
            select provider, stage, finish_reason, starts_with(finish_reason, 'error: ') as has_failed
            from completions
            union all
            select provider, stage, finish_reason, starts_with(finish_reason, 'error: ') from reviews
            where finish_reason <> 'repeated'
        ) group by provider
    ) full join (
        select provider, min(sent_at)::timestamp as first_try_at, max(sent_at)::timestamp as last_try_at
        from tries group by provider
    ) using (provider) order by provider;
comment on view providers is 'Each provider that was asked, by which stages, and between which times over the wire (UTC; null: there is no wire); how a provider is set up is in params.yaml';

create or replace view sources as
    with authors as (
        select candidate_id, list(distinct author(provider, stage) order by author(provider, stage)) as authors
        from completions where candidate_id is not null group by candidate_id
    )
    select c.candidate_id, c.problem_id, p.suite, p.level, p.name, p.split, coalesce(authors, []) as authors,
           readable(c.source) as source
    from candidates c left join problems p using (problem_id) left join authors using (candidate_id);
comment on view sources is 'The source of each candidate as text, with its problem and its authors';

create or replace view answers as
    select c.completion_id, c.stage, author(c.provider, c.stage) as author, c.problem_id, p.level, p.name,
           p.split, c.attempt, c.turn,
           case when c.candidate_id is null then 'no_source' else coalesce(v.status, 'not_judged') end
               as outcome,
           kind_of(v.reason) as reason_kind, v.certified, c.candidate_id, c.no_candidate_reason,
           c.finish_reason, c.cost_usd, readable(c.answer) as answer, readable(c.reasoning) as reasoning
    from completions c left join problems p using (problem_id) left join final_verdicts v using (candidate_id)
    where c.finish_reason <> 'exhausted';
comment on view answers is 'Each answer, one row: the stage that asked, its author (the provider, which may be a search method such as evolve-bucket, or ''policy (STAGE)''), its problem, what became of it (outcome and certified of final_verdicts; reason_kind: why it is not correct, to group by; the whole reason is in outcomes), and its text. sft, selfsup@ROUND and rl have answers of both splits';

create or replace view stage_runs as
    select stage, started_at::timestamp as started_at, ended_at::timestamp as ended_at,
           epoch(ended_at::timestamp - started_at::timestamp) as took_s, num_starts, num_facts,
           started_at = max(started_at) over (partition by stage) as is_latest
    from runs order by started_at;
comment on view stage_runs is 'When each stage ran (UTC), and how many seconds it took from its first start to its end, with the pauses after kills (num_starts above 1); a stage that was asked for again has a row for each run, is_latest is its last; no end: it runs, or was killed. In the order of their start';

create or replace view charges as
    select sent_at::timestamp as sent_at, provider, stage, request_id, outcome, cost_usd, at_most_usd, said
    from tries order by sent_at;
comment on view charges is 'Each request that was sent over the wire, when (UTC) and what it cost (null: in doubt)';

comment on table rewards is 'What each answer earned in training. step counts from 0: the answers of step 0 made step 1 of training_steps. raw: its certified speedup, a failure 0; smoothed: what trained the policy, how far that is above or below what was usual';
comment on table training_steps is 'Numbers of each training step, one row a number; step counts from 1. name: loss, learning_rate and others; of rl: reward_raw (mean of rewards.raw), reward (mean of rewards.smoothed, near 0 by construction), step_s and more';
comment on table timing_samples is 'One row a burst, which is num_calls calls in one timed interval. role: whose burst it is, the reference''s or the candidate''s: a candidate''s rows have both; quad: two bursts of each role, or one of each, in a drawn order (position); session: 0 for the measurement of which speedup, lower, upper and num_quads are, 1 and 2 for repetitions, if there were any, which certified needs, too. net_us: of one call, without the harness''s own time';
comment on table protocols is 'How verdicts were made: the fingerprint and the settings as JSON. protocols.content ->> ''$.timing'' is false for checks without timing; a run has several protocols: all checks, checks without timing, second measurements';
