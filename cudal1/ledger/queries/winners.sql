-- Which successful candidates of each problem, of those that some stages judged, have the highest certified speedup?
select v.problem_id, v.candidate_id, v.device_kind, v.certified, decode(k.source) as source
from judged v join candidates k using (candidate_id)
where v.status = 'correct' and v.certified is not null and v.protocol_id = $protocol_id
  and exists (select 1 from members m where m.kind = 'verdicts' and list_contains($stages, m.stage)
              and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
qualify row_number() over (partition by v.problem_id, v.device_kind order by v.certified desc, v.candidate_id) <= $count
order by v.problem_id, v.certified desc, v.candidate_id
