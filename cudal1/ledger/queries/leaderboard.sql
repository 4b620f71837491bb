-- Who found the most and the fastest? Best certified speedup of each problem by provider and stage
select provider, stage, count(*) as num_problems, count(*) filter (top > 1.01) as num_faster,
       exp(avg(ln(greatest(top, 1)))) as geometric_mean, max(top) as best
from (
    select provider, stage, problem_id, max(certified) as top
    from outcomes where outcome = 'correct' and certified is not null group by all
) group by provider, stage order by geometric_mean desc, provider, stage
