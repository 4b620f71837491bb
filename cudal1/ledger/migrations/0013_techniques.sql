-- What a candidate does that its reference does not; null: older code did not look, or there was no reference.

alter table candidates add column techniques varchar[];
comment on column candidates.techniques is 'Techniques by which it may be faster, read from its source beside the reference''s; what each means: docs/techniques.md';
