-- The ledger: what happened to each candidate. Facts have natural keys and are appended once.

create table if not exists meta (name varchar primary key, value varchar not null);

create table if not exists problems (
    problem_id varchar primary key, suite varchar not null, level integer not null,
    number integer not null, name varchar not null, split varchar not null,
    device_class varchar not null, revision varchar not null, source varchar not null,
    admitted boolean not null, rejection varchar
);
comment on table problems is 'Items of the suite as they are shown and judged; rejection says why one is not';

create table if not exists completions (
    completion_id varchar primary key, stage varchar not null, provider varchar not null,
    problem_id varchar not null, prompt_id varchar not null, attempt integer not null,
    answer blob not null, finish_reason varchar not null, num_prompt_tokens integer,
    num_completion_tokens integer, cost_usd double not null, exemplar_ids varchar[] not null,
    candidate_id varchar, no_candidate_reason varchar
);
comment on table completions is 'Raw answers (UTF-8 bytes) and the candidate found in each, or why there is none';

create table if not exists candidates (
    candidate_id varchar primary key, problem_id varchar not null, source blob not null
);
comment on table candidates is 'Distinct sources (UTF-8 bytes), named by their content';

create table if not exists protocols (protocol_id varchar primary key, content varchar not null);
comment on table protocols is 'How verdicts were made: the fingerprint and the settings as JSON';

create table if not exists verdicts (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    problem_id varchar not null, status varchar not null, reason varchar,
    speedup double, certified double, num_quads integer, bucket_variance double, is_stable boolean,
    is_confirmed boolean, reference_us double, candidate_us double,
    num_inputs integer, judge_s double not null, judged_at varchar not null,
    content varchar not null,
    primary key (candidate_id, device_kind, protocol_id)
);
comment on table verdicts is 'One for each candidate, kind of device and protocol; content is the whole record as JSON';
comment on column verdicts.speedup is 'Estimate: reference time over candidate time';
comment on column verdicts.certified is 'Lower bound that the stop rule certified; what is rewarded';

create table if not exists timing_samples (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    session integer not null, quad integer not null, position integer not null, role varchar not null,
    num_calls integer not null, burst_us double not null, net_us double not null,
    primary key (candidate_id, device_kind, protocol_id, session, quad, position)
);
comment on table timing_samples is 'One row a burst: the interval, and one call net of the harness''s own cost';

create table if not exists hack_flags (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    kind varchar not null, source varchar not null, evidence varchar not null,
    primary key (candidate_id, device_kind, protocol_id, kind, source)
);
comment on table hack_flags is 'Named cheats; source "screen" is advisory';

create table if not exists rewards (
    stage varchar not null, step integer not null, completion_id varchar not null,
    raw double not null, smoothed double not null,
    primary key (stage, step, completion_id)
);
comment on table rewards is 'What each answer earned in training: the speedup, and equation 6 of it';

create table if not exists training_steps (
    stage varchar not null, step integer not null, name varchar not null, value double not null,
    primary key (stage, step, name)
);
comment on table training_steps is 'Numbers of each training step, in long form';

create table if not exists members (
    stage varchar not null, kind varchar not null, key varchar not null,
    primary key (stage, kind, key)
);
comment on table members is 'Which facts a stage used in its latest run; kind is a table, key its natural key';

create or replace view successes as
    select v.*, p.suite, p.level, p.name, p.split
    from verdicts v join problems p using (problem_id)
    where v.status = 'correct';
comment on view successes is 'Verdicts of executable, correct, unflagged candidates, with their problem';

create or replace view best as
    select problem_id, any_value(suite) as suite, any_value(level) as level,
           any_value(name) as name, any_value(split) as split, device_kind, protocol_id,
           max(certified) as certified, arg_max(candidate_id, certified) as candidate_id
    from successes where certified is not null
    group by problem_id, device_kind, protocol_id;
comment on view best is 'The best certified speedup of each problem, and whose it is';
