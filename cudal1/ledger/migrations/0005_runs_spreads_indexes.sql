-- When each stage ran; what timing samples come to, so that nobody reads millions of them for it; and
-- indexes on what facts are looked up by, because one over several columns serves no look-up.

create table runs (
    stage varchar not null, started_at varchar not null, run varchar not null,
    num_starts integer not null, ended_at varchar, num_facts integer,
    primary key (stage, started_at)
);
comment on table runs is 'When each stage ran; kept on this machine, in data/unclaimed: shards have no times, so that equal facts are equal bytes';
comment on column runs.started_at is 'UTC, to the microsecond';
comment on column runs.run is 'Names the parameters and input data; empty where nobody said';
comment on column runs.num_starts is 'How often it was begun: 1, and once more after each kill that it survived';
comment on column runs.ended_at is 'UTC; null: it runs, or was killed and nobody has gone on with it';
comment on column runs.num_facts is 'Facts that it found or used, which are in members; null until it ends';

create table timing_spreads (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    session integer not null, role varchar not null, num_samples integer not null,
    median_us double not null, iqr_us double not null
); -- no key, as timing_samples
comment on table timing_spreads is 'What the timing samples of each session and role come to; derived, in no shard';
comment on column timing_spreads.session is 'As in timing_samples';
comment on column timing_spreads.role is 'As in timing_samples';
comment on column timing_spreads.median_us is 'Of net_us';
comment on column timing_spreads.iqr_us is 'Third less first quartile of net_us';
insert into timing_spreads
    select * exclude (quartiles), quartiles[2], quartiles[3] - quartiles[1] from (
        select candidate_id, device_kind, protocol_id, session, role, count(*),
               quantile_cont(net_us, [0.25, 0.5, 0.75]) as quartiles
        from timing_samples group by all
    );

create index verdicts_by_candidate on verdicts (candidate_id);
create index completions_by_candidate on completions (candidate_id);
create index members_by_key on members (key);
create index reviews_by_candidate on reviews (candidate_id);

-- columns that had no comment
comment on column candidates.candidate_id is 'Content id of problem and source';
comment on column candidates.problem_id is 'What it claims to replace';
comment on column completions.attempt is 'For which time it was asked, from 0; in stage rl, the step times 10,000 and the place in it';
comment on column completions.candidate_id is 'The candidate in the answer; null: none';
comment on column completions.finish_reason is 'stop, length, what the provider said; exhausted: it has no more answers; error: …: the request failed';
comment on column completions.no_candidate_reason is 'Why there is no candidate';
comment on column completions.num_completion_tokens is 'Usage, where it was reported';
comment on column completions.num_prompt_tokens is 'Usage, where it was reported';
comment on column completions.problem_id is 'About what';
comment on column completions.provider is 'Whom';
comment on column hack_cases.case_id is 'Content id of the source';
comment on column hack_cases.evidence is 'Why, in one line';
comment on column hack_cases.kind is 'The cheat''s name';
comment on column hack_flags.candidate_id is 'Of the verdict';
comment on column hack_flags.device_kind is 'Of the verdict';
comment on column hack_flags.protocol_id is 'Of the verdict';
comment on column hack_flags.kind is 'The cheat''s name';
comment on column members.stage is 'Whose latest run used the fact';
comment on column meta.name is 'What is remembered';
comment on column meta.value is 'For the code only';
comment on column mutants.problem_id is 'Whose check';
comment on column problems.admitted is 'Whether it can be judged';
comment on column problems.name is 'For people';
comment on column problems.number is 'Within its level; never reused';
comment on column problems.revision is 'Version of the suite';
comment on column problems.source is 'The whole file';
comment on column problems.suite is 'Which collection of problems';
comment on column protocols.content is 'The settings as JSON';
comment on column protocols.protocol_id is 'Fingerprint of the settings; verdicts compare only within one';
comment on column reviews.answer is 'As in completions';
comment on column reviews.attempt is 'As in completions';
comment on column reviews.candidate_id is 'About whom';
comment on column reviews.cost_usd is 'As in completions';
comment on column reviews.evidence is 'Why, in one line';
comment on column reviews.kind is 'The cheat''s name';
comment on column reviews.num_completion_tokens is 'As in completions';
comment on column reviews.num_prompt_tokens is 'As in completions';
comment on column reviews.num_reasoning_tokens is 'As in completions';
comment on column reviews.problem_id is 'What the candidate claims to replace';
comment on column reviews.prompt_id is 'As in completions';
comment on column reviews.provider is 'Whom';
comment on column reviews.reasoning is 'As in completions';
comment on column reviews.response is 'As in completions';
comment on column reviews.stage is 'Who asked';
comment on column reviews.template_id is 'As in completions';
comment on column rewards.completion_id is 'What for';
comment on column rewards.stage is 'Whose training';
comment on column rewards.step is 'Training step, from 0';
comment on column rulings.candidate_id is 'About whom';
comment on column rulings.evidence is 'Why, in one line';
comment on column rulings.is_cheat is 'What was decided';
comment on column rulings.kind is 'The cheat''s name';
comment on column rulings.ruled_at is 'UTC';
comment on column runs.stage is 'Which';
comment on column timing_samples.candidate_id is 'Of the verdict';
comment on column timing_samples.device_kind is 'Of the verdict';
comment on column timing_samples.protocol_id is 'Of the verdict';
comment on column timing_samples.num_calls is 'Calls in the burst';
comment on column timing_samples.position is 'Place in the quad, from 0';
comment on column timing_spreads.candidate_id is 'Of the verdict';
comment on column timing_spreads.device_kind is 'Of the verdict';
comment on column timing_spreads.protocol_id is 'Of the verdict';
comment on column timing_spreads.num_samples is 'Bursts';
comment on column training_steps.name is 'Which number, such as loss';
comment on column training_steps.stage is 'Whose training';
comment on column training_steps.step is 'Training step';
comment on column training_steps.value is 'The number';
comment on column tries.provider is 'Whom';
comment on column tries.said is 'What went wrong';
comment on column tries.sent_at is 'UTC, to the microsecond';
comment on column tries.stage is 'Who asked';
comment on column verdicts.baseline is 'How the reference was run';
comment on column verdicts.bucket_medians is 'Speedup in each time-ordered bucket';
comment on column verdicts.candidate_id is 'About whom';
comment on column verdicts.correctness_stage is 'How many stages of inputs it passed';
comment on column verdicts.device_id is 'Which device';
comment on column verdicts.device_kind is 'What kind of device; verdicts compare only within one';
comment on column verdicts.first_mismatch is 'Where the first wrong element was';
comment on column verdicts.is_stable is 'Whether the variance of the buckets was small enough';
comment on column verdicts.judged_at is 'UTC';
comment on column verdicts.max_relative_l2 is 'Largest relative error of an output, in the 2-norm';
comment on column verdicts.problem_id is 'What the candidate claims to replace';
comment on column verdicts.protocol_id is 'How; verdicts compare only within one';
comment on column verdicts.reason is 'Why it failed, in one line; null: it did not';
comment on column verdicts.sandbox is 'Layers that were active; unsafe among them: the minimum was waived';
