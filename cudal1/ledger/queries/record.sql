-- What is the best certified speedup of a problem, a candidate's own aside? Null when nobody else has succeeded.
select max(certified) as certified from judged
where problem_id = $problem_id and device_kind = $device_kind and protocol_id = $protocol_id
  and status = 'correct' and candidate_id <> $candidate_id
