-- How often was each candidate shown as an exemplar, and how did the answers to those prompts do?
select u.candidate_id, max(shown.certified) as certified, count(distinct u.completion_id) as num_uses,
       count(distinct u.completion_id) filter (answer.status = 'correct') as num_correct,
       max(answer.certified) as best_answer
from exemplar_uses u
join completions c using (completion_id)
left join judged shown on shown.candidate_id = u.candidate_id
left join judged answer on answer.candidate_id = c.candidate_id
group by u.candidate_id order by num_uses desc, u.candidate_id
