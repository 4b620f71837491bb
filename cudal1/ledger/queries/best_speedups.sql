-- What is the best certified speedup of each problem, and who wrote it?
select b.level, b.name, b.split, b.device_kind, b.certified, b.candidate_id,
       (select list(distinct provider order by provider) from completions c
        where c.candidate_id = b.candidate_id) as authors
from best b where b.protocol_id = $protocol_id
order by b.certified desc, b.level, b.name, b.device_kind
