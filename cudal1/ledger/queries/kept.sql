-- Which successful candidates does stage 1 learn from?
select distinct c.provider, c.problem_id, v.candidate_id, decode(k.source) as source, v.speedup, v.certified
from judged v
join candidates k using (candidate_id)
join completions c using (candidate_id)
where v.device_kind = $device_kind and v.protocol_id = $protocol_id
  and v.status = 'correct'
  and list_contains($keys, c.problem_id || '/' || c.provider || '/' || v.candidate_id)
order by c.problem_id, c.provider, v.candidate_id
