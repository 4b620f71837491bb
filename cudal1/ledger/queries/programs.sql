-- Which programs had answers about a problem before a training stage's answers from an attempt on: in some stages, or in that stage?
select distinct coalesce(a.program_id, a.candidate_id) as program_id
from completions c join candidates a using (candidate_id)
join members m on m.kind = 'completions' and m.key = c.completion_id
where c.problem_id = $problem_id
  and (list_contains($stages, m.stage) or (m.stage = $running and c.attempt < $first_attempt))
order by program_id
