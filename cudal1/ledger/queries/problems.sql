-- What does the suite hold, and why is a problem left out?
select problem_id, suite, level, number, name, split, device_class, revision, source, admitted, rejection,
       invariants
from problems p
where exists (select 1 from members m where m.stage = 'problems' and m.kind = 'problems' and m.key = p.problem_id)
order by suite, level, number, problem_id
