-- What does the harness say of every candidate that these stages' latest runs judged?
select distinct v.* exclude (content)
from judged v join members m
  on m.kind = 'verdicts' and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
where list_contains($stages, m.stage)
order by v.candidate_id, v.device_kind, v.protocol_id
