create or replace view words as
    select candidate_id, is_cheat, kind, evidence, ruled_at from rulings
    union all
    select r.candidate_id, arg_max(p.is_cheat, p.ruled_at), arg_max(p.kind, p.ruled_at),
           arg_max(p.evidence, p.ruled_at), max(p.ruled_at)
    from (select distinct candidate_id, code_id from reviews) r join rulings p using (code_id)
    where r.candidate_id not in (select candidate_id from rulings)
    group by r.candidate_id;
comment on view words is 'A person''s word on each candidate: a ruling on itself, else the latest on the same code';

create or replace view vetoes as
    select candidate_id, kind, evidence, 'person' as source from words where is_cheat
    union all
    select candidate_id, arg_max(kind, review_id), arg_max(evidence, review_id), 'judge' from reviews
    where is_cheat and candidate_id not in (select candidate_id from words)
    group by candidate_id;
comment on view vetoes is 'Candidates in which a person or the adversarial judge saw a cheat that the harness had not';

create or replace view judged as
    select v.* replace (
        case when v.status = 'correct' and veto.kind is not null then 'hacked' else v.status end as status,
        case when v.status = 'correct' and veto.kind is not null
             then veto.kind || ': ' || veto.evidence else v.reason end as reason,
        case when veto.kind is null then v.speedup end as speedup,
        case when veto.kind is null then v.certified end as certified,
        case when veto.kind is null then v.lower end as lower,
        case when veto.kind is null then v.upper end as upper),
        veto.source as vetoed_by
    from verdicts v left join vetoes veto using (candidate_id);
comment on view judged is 'Verdicts with vetoes applied: what counts';

create or replace view flags as
    select candidate_id, device_kind, protocol_id, kind, source, evidence from hack_flags
    union all
    select v.candidate_id, v.device_kind, v.protocol_id, veto.kind, veto.source, veto.evidence
    from verdicts v join vetoes veto using (candidate_id) where v.status = 'correct';
comment on view flags is 'Named cheats, whoever saw them: hack_flags, and vetoes of the judge and of people';

create or replace view cases as
    select case_id, null as candidate_id, kind, source, evidence, origin from hack_cases
    union all
    select r.candidate_id, r.candidate_id, r.kind, c.source, r.evidence, 'confirmed'
    from rulings r join candidates c using (candidate_id) where r.is_cheat;
comment on view cases is 'Cheats that the adversarial judge is shown the most similar of: those that ship, and those that people confirmed here';

create or replace view successes as
    select v.*, p.suite, p.level, p.name, p.split
    from judged v join problems p using (problem_id)
    where v.status = 'correct';
comment on view successes is 'Verdicts of executable, correct, unflagged candidates, with their problem';

create or replace view best as
    select problem_id, any_value(suite) as suite, any_value(level) as level,
           any_value(name) as name, any_value(split) as split, device_kind, protocol_id,
           max(certified) as certified, arg_max(candidate_id, certified) as candidate_id
    from successes where certified is not null
    and not exists (
        select 1 from members m where m.stage like 'transfer@%' and m.kind = 'verdicts'
        and m.key = concat_ws('/', candidate_id, device_kind, protocol_id))
    group by problem_id, device_kind, protocol_id;
comment on view best is 'The best certified speedup of each problem and whose it is; what transfer measured again is left out';

create or replace view outcomes as
    select used.stage, c.completion_id, c.provider, c.problem_id, p.level, p.name, p.split,
           c.attempt, c.cost_usd, c.num_prompt_tokens, c.num_completion_tokens, c.candidate_id,
           case when c.candidate_id is null then 'no_source' else coalesce(v.status, 'not_judged') end
               as outcome,
           v.speedup, v.certified, v.device_kind, v.protocol_id
    from members used
    join completions c on used.kind = 'completions' and c.completion_id = used.key
    join problems p using (problem_id)
    left join (
        select m.stage as judged_in, v.* from members m join judged v
        on m.kind = 'verdicts' and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
    ) v on v.judged_in = used.stage and v.candidate_id = c.candidate_id
    where c.finish_reason <> 'exhausted';
comment on view outcomes is 'What became of each answer in each stage that used it: the status of its verdict, no_source or not_judged';

create or replace view exemplar_uses as
    select completion_id, problem_id, unnest(range(1, len(exemplar_ids) + 1)) as position,
           unnest(exemplar_ids) as candidate_id
    from completions;
comment on view exemplar_uses is 'Which earlier candidates were shown in the prompt of an answer, by position from 1';
