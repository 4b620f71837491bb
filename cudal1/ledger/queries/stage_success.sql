-- How often do answers of each stage succeed, and how fast are they, on training and held-out problems?
select stage, split, count(*) as num_answers, avg((outcome = 'correct')::integer) as success_rate,
       avg(certified) filter (outcome = 'correct') as mean_certified,
       avg(case when outcome = 'correct' then certified else 0 end) as mean_reward
from outcomes group by stage, split order by stage, split
