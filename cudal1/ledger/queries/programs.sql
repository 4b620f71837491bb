-- Which programs had answers about a problem before a training stage's answers from an attempt on?
select distinct coalesce(a.program_id, a.candidate_id) as program_id
from completions c join candidates a using (candidate_id)
where c.problem_id = $problem_id and (
    c.stage <> $running or (c.attempt < $first_attempt and exists (
        select 1 from members m
        where m.stage = $running and m.kind = 'completions' and m.key = c.completion_id)))
order by program_id
