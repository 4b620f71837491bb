-- What does the harness say of every candidate that these stages' latest runs judged?
select candidate_id, problem_id, device_kind, protocol_id, status, precision, speedup, certified, num_quads,
       bucket_variance, is_stable, is_confirmed, reference_us, candidate_us, judge_s
from judged
where concat_ws('/', candidate_id, device_kind, protocol_id) in (
    select m.key from members m where m.kind = 'verdicts' and list_contains($stages, m.stage))
order by candidate_id, device_kind, protocol_id
