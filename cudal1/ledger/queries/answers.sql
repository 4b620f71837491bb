-- Which answers did these stages' latest runs use, and what candidate was in each?
select m.stage as used_by, c.completion_id, c.stage, c.provider, c.problem_id, c.attempt, c.finish_reason,
       c.candidate_id, c.no_candidate_reason, c.num_prompt_tokens, c.num_completion_tokens, c.cost_usd,
       k.best_shown, k.is_copy
from members m join completions c on c.completion_id = m.key left join copies k using (completion_id)
where m.kind = 'completions' and c.finish_reason <> 'exhausted' and m.stage <> 'filter'
  and list_contains($stages, m.stage)
order by m.stage, c.completion_id
