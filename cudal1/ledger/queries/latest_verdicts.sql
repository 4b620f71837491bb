-- What does the harness say of every candidate that these stages' latest runs judged?
select v.candidate_id, v.problem_id, v.device_kind, v.protocol_id, v.status, v.precision, v.speedup, v.certified,
       v.num_quads, v.bucket_variance, v.is_stable, v.is_confirmed, v.reference_us, v.candidate_us, v.judge_s,
       v.compiling_s, v.follows_weights, v.fresh_outputs, v.leaves_inputs, v.draws_weights, v.deterministic,
       v.needs_compiler, v.copies_reference, o.over_baselines
from judged v left join (
    select candidate_id, device_kind, protocol_id,
           list({'baseline': baseline, 'certified_over': certified_over} order by baseline) as over_baselines
    from over_baselines group by all
) o using (candidate_id, device_kind, protocol_id)
where concat_ws('/', candidate_id, device_kind, protocol_id) in (
    select m.key from members m where m.kind = 'verdicts' and list_contains($stages, m.stage))
order by candidate_id, device_kind, protocol_id
