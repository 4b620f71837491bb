-- Which answers to these problems, in whatever stage, have a certified speedup, and which program is each?
select v.problem_id, v.candidate_id, v.certified, coalesce(k.program_id, k.candidate_id) as program_id
from judged v join candidates k using (candidate_id)
where v.status = 'correct' and v.certified is not null
  and v.device_kind = $device_kind and v.protocol_id = $protocol_id and list_contains($problem_ids, v.problem_id)
  and v.candidate_id in (select candidate_id from completions)
order by v.problem_id, v.candidate_id
