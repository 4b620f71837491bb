-- The sources of these candidates
select candidate_id, problem_id, decode(source) as source from candidates
where candidate_id in (select unnest($candidate_ids::varchar[])) order by candidate_id
