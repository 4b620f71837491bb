-- From which earlier candidates does a candidate descend, and how far back?
with recursive ancestors(candidate_id, generation) as (
    select $candidate_id::varchar, 0
    union
    select u.candidate_id, a.generation + 1
    from ancestors a
    join completions c on c.candidate_id = a.candidate_id
    join exemplar_uses u using (completion_id)
    where a.generation < 50
)
select min(a.generation) as generation, a.candidate_id, any_value(c.provider order by c.completion_id) as provider,
       max(v.certified) as certified
from ancestors a
left join completions c using (candidate_id)
left join judged v using (candidate_id)
group by a.candidate_id order by generation, a.candidate_id
