-- Which exemplars were shown in the prompts that these candidates came from, in their prompts, and so on?
with recursive ancestors(descendant_id, candidate_id, generation) as (
    select candidate_id, candidate_id, 0 from (select unnest($candidate_ids::varchar[]) as candidate_id)
    union
    select a.descendant_id, u.candidate_id, a.generation + 1
    from ancestors a
    join completions c on c.candidate_id = a.candidate_id
    join exemplar_uses u using (completion_id)
    where a.generation < $generations
)
select a.descendant_id, a.candidate_id, min(a.generation) as generation, any_value(v.certified) as certified
from ancestors a
left join judged v on v.candidate_id = a.candidate_id
    and v.device_kind = $device_kind and v.protocol_id = $protocol_id
where a.candidate_id <> a.descendant_id
group by a.descendant_id, a.candidate_id order by descendant_id, generation, candidate_id
