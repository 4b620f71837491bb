-- What do the verdicts on these candidates say beyond their speedup?
select candidate_id, lower, upper, alpha, doubt, bucket_medians, floor_us, num_inputs, max_relative_l2,
       second_opinion, strftime(judged_at, '%Y-%m-%dT%H:%M:%SZ') as judged_at
from judged
where candidate_id in (select unnest($candidate_ids::varchar[]))
  and device_kind = $device_kind and protocol_id = $protocol_id
order by candidate_id
