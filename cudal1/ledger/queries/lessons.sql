-- Which successful candidates of each problem, whoever found them, have the highest certified speedup, and which of them were judged since?
select v.problem_id, v.candidate_id, v.certified, strftime(v.judged_at, '%Y-%m-%dT%H:%M:%S') > $since as is_new, decode(k.source) as source
from judged v join candidates k using (candidate_id)
where v.status = 'correct' and v.certified is not null
  and v.device_kind = $device_kind and v.protocol_id = $protocol_id and list_contains($problem_ids, v.problem_id)
qualify row_number() over (partition by v.problem_id order by v.certified desc, v.candidate_id) <= $count
order by v.problem_id, v.certified desc, v.candidate_id
