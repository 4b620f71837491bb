-- The timing samples of the smallest certified gain, where noise matters most
select s.* from timing_samples s
where s.candidate_id = (
    select candidate_id from judged
    where status = 'correct' and certified is not null and protocol_id = $protocol_id
    order by certified <= 1.01, certified, candidate_id limit 1
) and s.protocol_id = $protocol_id
order by session, quad, position
