-- What is the best certified speedup of a problem so far? Null when nobody has succeeded.
select max(certified) as certified from verdicts
where problem_id = $problem_id and device_kind = $device_kind and protocol_id = $protocol_id
  and status = 'correct'
