-- What did each provider's answers cost, and a correct one?
select c.provider, count(*) as num_answers, sum(c.num_prompt_tokens) as num_prompt_tokens,
       sum(c.num_completion_tokens) as num_completion_tokens, sum(c.cost_usd) as cost_usd,
       sum(c.cost_usd) / nullif(count(*) filter (c.candidate_id in (
           select candidate_id from verdicts where status = 'correct'
       )), 0) as usd_per_correct
from completions c where c.finish_reason <> 'exhausted'
group by c.provider order by cost_usd desc, c.provider
