-- What was seen of a correct candidate beyond its outputs; null: it could not be told, or was not looked at.

alter table verdicts add column follows_weights boolean;
alter table verdicts add column fresh_outputs boolean;
alter table verdicts add column leaves_inputs boolean;
alter table verdicts add column draws_weights boolean;
alter table verdicts add column deterministic boolean;
alter table verdicts add column needs_compiler boolean;
alter table verdicts add column copies_reference boolean;
comment on column verdicts.follows_weights is 'Whether a correct candidate computes with other weights once they are loaded by the reference''s names; null where that could not be told, as in the columns that follow';
comment on column verdicts.fresh_outputs is 'Whether its outputs keep their values during later calls';
comment on column verdicts.leaves_inputs is 'Whether it does not write to its inputs; null where the reference does';
comment on column verdicts.draws_weights is 'Whether its constructor draws the reference''s weights under the reference''s seed; if not, it was given them by name';
comment on column verdicts.deterministic is 'Whether it gave the same bits twice for the same inputs';
comment on column verdicts.needs_compiler is 'Whether something was compiled when it was imported, constructed or called';
comment on column verdicts.copies_reference is 'Whether its source is the reference''s, names aside: timed only shortly, and never faster';
