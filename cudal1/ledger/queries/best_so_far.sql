-- What is the best certified speedup that a training stage's answers had earned on each problem after a step?
select problem_id, max(best_speedup) as best from best_by_step
where stage = $stage and step <= $step group by problem_id order by problem_id
