-- Which steps of these training stages raised the best certified speedup of a problem, and to what?
select stage, problem_id, step + 1 as step, best_speedup from rises where list_contains($stages, stage)
order by stage, problem_id, step
