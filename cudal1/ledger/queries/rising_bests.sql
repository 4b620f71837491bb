-- Which steps of a training stage raised the best certified speedup of a problem, and to what? Named as curves are.
select step + 1 as step, printf('best/%s/L%d/%02d_%s', suite, level, number, name) as name, best_speedup as value
from best_by_step join problems using (problem_id) where stage = $stage
qualify best_speedup > lag(best_speedup, 1, 0) over (partition by problem_id order by best_by_step.step)
order by step, name
