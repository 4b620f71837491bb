-- Which successful candidates of every problem did some stages use, how fast are they, and when and on which island was each born? A row a birth
select distinct v.problem_id, v.candidate_id, v.certified, k.island,
       case when k.stage = $running then k.attempt // $attempts_per_step end as born
from judged v join completions k using (candidate_id)
join members of_verdict on of_verdict.kind = 'verdicts' and list_contains($stages, of_verdict.stage)
     and of_verdict.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)
join members of_answer on of_answer.kind = 'completions' and list_contains($stages, of_answer.stage)
     and of_answer.key = k.completion_id
where v.device_kind = $device_kind and v.protocol_id = $protocol_id
  and v.status = 'correct' and v.certified is not null
order by v.problem_id, v.candidate_id, born nulls first, k.island nulls first
