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
