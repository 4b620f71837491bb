-- The LLM that may veto a suspicious success is called the reviewer.

drop index reviews_by_candidate; -- an indexed table cannot be altered
alter table reviews rename column judge_id to reviewer_id;
create index reviews_by_candidate on reviews (candidate_id);
comment on column verdicts.second_opinion is 'Whether the reviewer was asked when it was made: off (there was none), not_needed or asked';
comment on column hack_flags.source is 'screen (advisory), guard or timing; vetoes of the reviewer and of people are in vetoes';
comment on table reviews is 'What the reviewer said about suspicious successes';
comment on table rulings is 'What people decided about candidates; the latest holds, and stands above the reviewer';
