-- What an answer made of the exemplars that its prompt showed; null: older code did not note it.

alter table candidates add column program_id varchar;
comment on column candidates.program_id is 'Shared by all sources that are the same program in other words: names, comments and layout do not count';
alter table completions add column exemplar_scores double[];
comment on column completions.exemplar_scores is 'Scores that the prompt showed the exemplars with, in their order';
alter table completions add column analysis varchar;
comment on column completions.analysis is 'What the answer says under Performance Analysis; null: it has no such section';
alter table completions add column design varchar;
comment on column completions.design is 'What the answer says under Algorithm Design; null: it has no such section';
