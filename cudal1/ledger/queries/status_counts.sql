-- What became of the answers of each stage?
select stage, outcome, count(distinct completion_id) as num_answers
from outcomes group by stage, outcome order by stage, num_answers desc, outcome
