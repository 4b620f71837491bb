-- What baselines have over the eager reference, on one device under one protocol.
select candidate_id, problem_id, baseline, status, reason, speedup, at_most
from baseline_results
where device_kind = $device_kind and protocol_id = $protocol_id and baseline in $baselines
order by problem_id, baseline
