-- What a reader of `cudal1 sql --views` was misled by: what rows stand for, and what they leave out.

comment on table problems is 'Items of the suite, as they are shown and judged; no stage asks about one that is not admitted, for the reason in rejection';
comment on table members is 'Which facts a stage used in its latest run, found by it or by an earlier one. kind is a table''s name, key its columns with / between: CANDIDATE/DEVICE KIND/PROTOCOL for verdicts';
comment on table rewards is 'What each answer earned in training. raw: its certified speedup, a failure 0; smoothed: what trained the policy, how far that is above or below what was usual';
comment on table verdicts is 'What the harness says: one for each candidate, kind of device and protocol, so a candidate may have several; stage transfer judges winners again under a protocol of its own';
comment on table protocols is 'How verdicts were made: the fingerprint and the settings as JSON. One run has several: all checks, checks without timing, second measurements';
