-- The tables, as version 4 had them: facts have natural keys and are appended once.
-- Units are in the names: _us microseconds, _s seconds, _usd US dollars, num_ counts.

create table meta (name varchar primary key, value varchar not null);
comment on table meta is 'Housekeeping: version of the tables, content of the shards that were taken in, how far each journal was';

create table problems (
    problem_id varchar primary key, suite varchar not null, level integer not null,
    number integer not null, name varchar not null, split varchar not null,
    device_class varchar not null, revision varchar not null, source varchar not null,
    admitted boolean not null, rejection varchar
);
comment on table problems is 'Items of the suite, as they are shown and judged';
comment on column problems.problem_id is 'Content id of the source';
comment on column problems.level is '1 single operator, 2 operator sequence, 3 small architecture, 4 whole model';
comment on column problems.split is 'train or heldout: whether a problem may be trained on';
comment on column problems.device_class is 'Whose sizes the source carries: cpu or cuda';
comment on column problems.rejection is 'Why it cannot be judged; null when admitted';

create table mutants (
    problem_id varchar not null, mutant varchar not null, killed boolean, family varchar,
    num_inputs integer, precision varchar not null,
    primary key (problem_id, mutant)
);
comment on table mutants is 'Kill table of each problem: which wrong candidates its correctness check would notice';
comment on column mutants.mutant is 'What it does instead of the work, such as zeros; zeros[1] when to the second output alone';
comment on column mutants.killed is 'Whether the check noticed; null where there is nothing of the kind to do, or it changed no bit';
comment on column mutants.family is 'Kind of inputs that gave it away';
comment on column mutants.num_inputs is 'Inputs until it was noticed, that one included; of a survivor, all';
comment on column mutants.precision is 'Class that the check asked for: strict, tf32 or half';

create table completions (
    completion_id varchar primary key, stage varchar not null, provider varchar not null,
    problem_id varchar not null, prompt_id varchar not null, template_id varchar not null,
    attempt integer not null, answer blob not null, reasoning blob not null, response blob,
    finish_reason varchar not null, num_prompt_tokens integer, num_completion_tokens integer,
    num_reasoning_tokens integer, cost_usd double not null, exemplar_ids varchar[] not null,
    island integer, candidate_id varchar, no_candidate_reason varchar
);
comment on table completions is 'Raw answers, and the candidate found in each or why there is none';
comment on column completions.completion_id is 'Names the request: the same one is never asked, or paid for, twice';
comment on column completions.stage is 'The stage that asked first; who used it since is in members';
comment on column completions.answer is 'The text as UTF-8 bytes (lone surrogates kept), before anybody parsed it';
comment on column completions.reasoning is 'Thoughts that the provider kept apart from the answer, UTF-8 bytes';
comment on column completions.response is 'The body as it came over the wire, UTF-8 bytes; null where there was no wire';
comment on column completions.prompt_id is 'Hash of the rendered prompt';
comment on column completions.template_id is 'Hash of the template that it was rendered from';
comment on column completions.num_reasoning_tokens is 'Of num_completion_tokens, those that were not in the answer';
comment on column completions.cost_usd is 'Of the try that was answered; the bill is in tries';
comment on column completions.island is 'Island that the exemplars were from; null where exemplars were chosen otherwise';
comment on column completions.exemplar_ids is 'Candidates that were shown in the prompt, in their order';

create table tries (
    request_id varchar not null, sent_at varchar not null, stage varchar not null,
    provider varchar not null, outcome varchar not null, cost_usd double, at_most_usd double,
    said varchar, primary key (request_id, sent_at)
);
comment on table tries is 'The bill: a row for each time that a request was sent to a provider over the wire';
comment on column tries.request_id is 'Of the completion or the review that it was to bring';
comment on column tries.outcome is 'sent (nothing is known: we were killed), answered, refused (free), or lost (no answer came)';
comment on column tries.cost_usd is 'What it cost; null: in doubt, nothing to at_most_usd';
comment on column tries.at_most_usd is 'The most that it could cost; null where an answer''s length had no limit';

create table candidates (
    candidate_id varchar primary key, problem_id varchar not null, source blob not null
);
comment on table candidates is 'Distinct sources, named by their content';
comment on column candidates.source is 'UTF-8 bytes; decode(source) is the text';

create table protocols (protocol_id varchar primary key, content varchar not null);
comment on table protocols is 'How verdicts were made: the fingerprint and the settings as JSON';

create table verdicts (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    problem_id varchar not null, device_id varchar not null, status varchar not null,
    reason varchar, baseline varchar, speedup double, certified double, alpha double,
    lower double, upper double, doubt varchar, num_quads integer, bucket_medians double[], bucket_variance double, is_stable boolean,
    is_confirmed boolean, confirmed_on varchar, reference_us double, candidate_us double, floor_us double,
    num_inputs integer, correctness_stage integer, precision varchar, max_relative_l2 double,
    max_scaled_error double, first_mismatch varchar, second_opinion varchar not null, sandbox varchar[],
    judge_s double not null, judged_at varchar not null, content varchar not null,
    primary key (candidate_id, device_kind, protocol_id)
);
comment on table verdicts is 'What the harness says: one for each candidate, kind of device and protocol';
comment on column verdicts.status is 'The first gate that it failed, or correct';
comment on column verdicts.speedup is 'Estimate: reference time over candidate time, median of the bucket medians';
comment on column verdicts.certified is 'Speedup certified at alpha by the stop rule; what is rewarded';
comment on column verdicts.alpha is 'Probability of a false certificate; null under the paper''s rule, which has none';
comment on column verdicts.lower is 'The median speedup is below it with probability alpha at most; null: too few quads';
comment on column verdicts.upper is 'The median speedup is above it with probability alpha at most; null: too few quads';
comment on column verdicts.doubt is 'What lowered certified most below what timing alone certifies; null: nothing did';
comment on column verdicts.num_quads is 'ABBA or BAAB groups of four bursts that were timed; pairs under the paper''s rule';
comment on column verdicts.bucket_variance is 'Sample variance of bucket_medians, the speedups of the time-ordered buckets';
comment on column verdicts.is_confirmed is 'Whether fresh processes agreed; null when the claim was too small to ask';
comment on column verdicts.confirmed_on is 'Device whose fresh processes were asked';
comment on column verdicts.reference_us is 'Median time of one call of the reference';
comment on column verdicts.candidate_us is 'Median time of one call of the candidate';
comment on column verdicts.floor_us is 'No call can take less, by measured ceilings of the device; null where nothing could be proved';
comment on column verdicts.num_inputs is 'Inputs whose every output element agreed';
comment on column verdicts.precision is 'Tightest class that every output met';
comment on column verdicts.max_scaled_error is 'Largest element error over its bound; above 1 fails';
comment on column verdicts.second_opinion is 'Whether the adversarial judge was asked when it was made: off (there was none), not_needed or asked';
comment on column verdicts.judge_s is 'Wall time that the verdict cost';
comment on column verdicts.content is 'The whole record as JSON';

create table timing_samples (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    session integer not null, quad integer not null, position integer not null, role varchar not null,
    num_calls integer not null, burst_us double not null, net_us double not null
); -- no key: an index over millions of rows costs more than the rows; they come with their verdict, once
comment on table timing_samples is 'One row a burst inside one trusted interval';
comment on column timing_samples.session is '0 for the first measurement, 1 and 2 for its confirmations in fresh processes';
comment on column timing_samples.quad is 'Which group of four, in time order; position is the place inside it';
comment on column timing_samples.role is 'Whose burst: reference, candidate, or empty (the harness''s own cost)';
comment on column timing_samples.burst_us is 'The whole interval, from publishing inputs to holding every output';
comment on column timing_samples.net_us is 'One call, net of the empty burst';

create table hack_flags (
    candidate_id varchar not null, device_kind varchar not null, protocol_id varchar not null,
    kind varchar not null, source varchar not null, evidence varchar not null,
    primary key (candidate_id, device_kind, protocol_id, kind, source)
);
comment on table hack_flags is 'Named cheats that somebody saw';
comment on column hack_flags.source is 'screen (advisory), guard or timing; vetoes of the judge and of people are in vetoes';
comment on column hack_flags.evidence is 'One line that a person can check';

create table reviews (
    review_id varchar primary key, candidate_id varchar not null, code_id varchar not null, stage varchar not null,
    provider varchar not null, judge_id varchar not null, problem_id varchar not null,
    prompt_id varchar not null, template_id varchar not null, trigger varchar not null,
    case_ids varchar[] not null, attempt integer not null, answer blob not null, reasoning blob not null,
    response blob, finish_reason varchar not null, num_prompt_tokens integer,
    num_completion_tokens integer, num_reasoning_tokens integer, cost_usd double not null,
    is_cheat boolean, kind varchar, quote varchar, evidence varchar
);
comment on table reviews is 'What the adversarial judge said about suspicious successes';
comment on column reviews.review_id is 'Names the request, as completion_id does; of what was said of the same code, both';
comment on column reviews.code_id is 'Names what the candidate does: the same for the same code with other comments';
comment on column reviews.finish_reason is 'repeated: nobody was asked, since the same code had been judged under another candidate_id';
comment on column reviews.judge_id is 'Fingerprint of the provider that was asked';
comment on column reviews.trigger is 'Why it was asked';
comment on column reviews.case_ids is 'Confirmed cases that it was shown, the most similar first';
comment on column reviews.is_cheat is 'Null: what it said was no answer to the question';
comment on column reviews.quote is 'The line of the source that gives the cheat away';

create table rulings (
    candidate_id varchar primary key, code_id varchar not null, is_cheat boolean not null,
    kind varchar not null, evidence varchar not null, ruled_at varchar not null
);
comment on table rulings is 'What people decided about candidates; the latest holds, and stands above the judge';
comment on column rulings.code_id is 'As in reviews: a ruling holds for all candidates of the same code that have none of their own';

create table hack_cases (
    case_id varchar primary key, kind varchar not null, source blob not null,
    evidence varchar not null, origin varchar not null
);
comment on table hack_cases is 'Confirmed cheats that ship with cudal1; view cases adds those of rulings';
comment on column hack_cases.source is 'UTF-8 bytes without comments; decode(source) is the text';
comment on column hack_cases.origin is 'shipped';

create table rewards (
    stage varchar not null, step integer not null, completion_id varchar not null,
    raw double not null, smoothed double not null,
    primary key (stage, step, completion_id)
);
comment on table rewards is 'What each answer earned in training';
comment on column rewards.raw is 'The certified speedup, or what a failure earns';
comment on column rewards.smoothed is 'Equation 6 of the paper applied to raw: what trained';

create table training_steps (
    stage varchar not null, step integer not null, name varchar not null, value double not null,
    primary key (stage, step, name)
);
comment on table training_steps is 'Numbers of each training step, one row a number';

create table members (
    stage varchar not null, kind varchar not null, key varchar not null,
    primary key (stage, kind, key)
);
comment on table members is 'Which facts a stage used in its latest run';
comment on column members.kind is 'The table of the fact';
comment on column members.key is 'Its natural key; that of a verdict is candidate_id/device_kind/protocol_id';
