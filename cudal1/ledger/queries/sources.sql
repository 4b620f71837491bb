-- The source of every candidate
select candidate_id, problem_id, decode(source) as source from candidates order by candidate_id
