-- What did a provider answer, and what candidate was in it?
select c.completion_id, c.provider, c.problem_id, c.attempt, c.finish_reason, c.cost_usd,
       c.num_prompt_tokens, c.num_completion_tokens, c.candidate_id, decode(k.source) as source,
       c.no_candidate_reason
from completions c left join candidates k using (candidate_id)
where c.finish_reason <> 'exhausted'
  and c.completion_id in (select key from members where stage = $stage and kind = 'completions')
order by c.problem_id, c.attempt
