-- Successes per provider: how many answers were asked for, held a candidate, could be built, were correct?
select provider, count(distinct completion_id) as num_asked,
       count(distinct completion_id) filter (candidate_id is not null) as num_extracted,
       count(distinct completion_id) filter (outcome not in ('no_source', 'not_judged', 'no_build')) as num_built,
       count(distinct completion_id) filter (outcome = 'correct') as num_correct,
       num_correct / num_asked as correct_share
from outcomes group by provider order by correct_share desc, provider
