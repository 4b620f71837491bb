-- Which answers did these stages' latest runs use, and what candidate was in each?
select m.stage as used_by, c.*
from members m join completions c on c.completion_id = m.key
where m.kind = 'completions' and c.finish_reason <> 'exhausted' and m.stage <> 'filter'
  and list_contains($stages, m.stage)
order by m.stage, c.completion_id
