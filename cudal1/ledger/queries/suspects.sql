-- Which candidates did the reviewer or a person call a cheat, and what did a person decide?
select v.candidate_id, p.level, p.name as problem, v.source as seen_by, v.kind, v.evidence,
       max(d.certified) as certified, strftime(w.ruled_at, '%Y-%m-%dT%H:%M:%S.%fZ') as ruled_at
from vetoes v left join candidates c using (candidate_id) left join problems p using (problem_id)
left join verdicts d using (candidate_id) left join words w using (candidate_id)
group by all order by ruled_at nulls first, certified desc nulls last, v.candidate_id
