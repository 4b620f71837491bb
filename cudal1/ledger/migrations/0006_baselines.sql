-- Which candidates are baselines: a problem's reference, run in another way.

create table baselines (
    candidate_id varchar primary key, problem_id varchar not null, baseline varchar not null
);
comment on table baselines is 'Candidates that are a problem''s reference, run in another way, to compare others with';
comment on column baselines.candidate_id is 'Content id, as in candidates';
comment on column baselines.problem_id is 'Whose reference';
comment on column baselines.baseline is 'How it is run: compile, reduce_overhead, cuda_graph or cudnn_tf32';
