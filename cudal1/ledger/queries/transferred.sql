-- What did the winners measure when judged again, and the references against themselves?
select v.problem_id, p.name, p.level, p.split, v.candidate_id, v.device_kind, v.status, v.speedup, v.certified,
       exists (select 1 from null_tests n where n.candidate_id = v.candidate_id and n.device_kind = v.device_kind
               and n.protocol_id = v.protocol_id) as is_null_test
from judged v join problems p using (problem_id)
where v.protocol_id = $protocol_id
  and exists (select 1 from members m where m.stage = $stage and m.kind = 'verdicts'
              and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
order by v.problem_id, v.certified desc
