-- What a problem's generator promises of its inputs.

alter table problems add column invariants varchar[];
comment on column problems.invariants is 'What holds of its inputs in every draw, a line each; null: nobody has looked';
