-- The timing samples of these candidates' verdicts on a kind of device, under a protocol
select s.* from timing_samples s
where s.candidate_id in (select unnest($candidate_ids::varchar[]))
  and s.device_kind = $device_kind and s.protocol_id = $protocol_id
order by candidate_id, session, quad, position
