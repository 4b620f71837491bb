-- Which steps of a training stage raised the best certified speedup of a problem, and to what? Named as curves are.
select step + 1 as step, printf('best/%s/L%d/%02d_%s', suite, level, number, name) as name, best_speedup as value
from rises join problems using (problem_id) where stage = $stage
order by step, name
