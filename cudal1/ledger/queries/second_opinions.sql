-- Whom was the adversarial judge asked about, why, what did it say, and what did a person decide?
select r.candidate_id, any_value(r.problem_id) as problem_id, max_by(r.trigger, r.review_id) as trigger,
       bool_or(r.is_cheat) as is_cheat, max_by(r.kind, r.is_cheat) as kind, any_value(p.is_cheat) as ruling
from reviews r left join rulings p using (candidate_id)
group by r.candidate_id order by r.candidate_id
