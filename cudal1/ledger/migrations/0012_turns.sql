-- Which answers go on from which; null: older code did not note it, and no answer did.

alter table completions add column turn integer;
comment on column completions.turn is 'Number of the answer in its trajectory, from 1: later answers were shown the earlier ones with what became of them';
alter table completions add column follows varchar;
comment on column completions.follows is 'The answer before it in its trajectory; null for the first';
