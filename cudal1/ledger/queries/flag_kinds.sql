-- Which cheats were seen, by whom, and how often?
select kind, source as seen_by, source <> 'screen' as decides,
       count(distinct candidate_id) as num_candidates, any_value(evidence order by candidate_id) as example
from flags group by kind, source order by num_candidates desc, kind, seen_by
