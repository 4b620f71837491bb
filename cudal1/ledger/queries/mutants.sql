-- Which wrong candidates does the correctness check of each problem notice, by what, and how soon?
select p.suite, p.level, p.number, p.name, m.mutant, m.killed, m.family, m.num_inputs, m.precision
from mutants m join problems p using (problem_id)
order by p.suite, p.level, p.number, m.mutant
