-- Which stages used a candidate, or another of the same code, in their latest run? In the order of the pipeline
with same as (
    select $candidate_id::varchar as candidate_id
    union
    select r.candidate_id from reviews r
    where r.code_id in (select code_id from reviews where candidate_id = $candidate_id
                        union select code_id from rulings where candidate_id = $candidate_id)
)
select distinct m.stage,
       list_position(['problems', 'policy', 'generate', 'filter', 'sft', 'selfsup', 'rl', 'ablation', 'search', 'transfer',
                      'report'], split_part(m.stage, '@', 1)) as place
from members m
left join completions c on m.kind = 'completions' and c.completion_id = m.key
where (m.kind = 'verdicts' and split_part(m.key, '/', 1) in (select candidate_id from same))
   or c.candidate_id in (select candidate_id from same)
order by place, m.stage
