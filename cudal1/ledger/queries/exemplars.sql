-- Which successful candidates of a problem did some stages use, how fast are they, and when and on which island was each born? A row a birth
select distinct c.candidate_id, c.source, v.certified, k.island,
       case when k.stage = $running then k.attempt // $attempts_per_step end as born
from judged v join candidates c using (candidate_id) join completions k using (candidate_id)
where v.problem_id = $problem_id and v.device_kind = $device_kind and v.protocol_id = $protocol_id
  and v.status = 'correct' and v.certified is not null
  and exists (select 1 from members m where m.kind = 'verdicts' and list_contains($stages, m.stage)
              and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
  and exists (select 1 from members m where m.kind = 'completions' and list_contains($stages, m.stage)
              and m.key = k.completion_id)
order by c.candidate_id, born nulls first, k.island nulls first
