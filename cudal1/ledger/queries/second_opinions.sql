-- Whom was the reviewer to be asked about, why, what did it say (null: nothing), and what did a person decide?
with suspected as (
    select candidate_id, problem_id from verdicts where second_opinion = 'asked'
    union
    select candidate_id, problem_id from reviews
)
select s.candidate_id, any_value(s.problem_id) as problem_id, max_by(r.trigger, r.review_id) as trigger,
       bool_or(r.is_cheat) as is_cheat, max_by(r.kind, r.is_cheat) as kind, any_value(w.is_cheat) as ruling
from suspected s left join reviews r using (candidate_id) left join words w using (candidate_id)
group by s.candidate_id order by s.candidate_id
