-- What a verdict's seconds went for; null: nobody noted it.

alter table verdicts add column starting_s double;
alter table verdicts add column compiling_s double;
alter table verdicts add column checking_s double;
alter table verdicts add column measuring_s double;
comment on column verdicts.starting_s is 'Of judge_s: processes began, imported and constructed, and ended; with the next three, all of it';
comment on column verdicts.compiling_s is 'Of judge_s: something compiled when a process imported, constructed or ran its first call; what was compiled ahead is not in it';
comment on column verdicts.checking_s is 'Of judge_s: outputs were asked for and compared, before anything was timed';
comment on column verdicts.measuring_s is 'Of judge_s: calls were timed';
