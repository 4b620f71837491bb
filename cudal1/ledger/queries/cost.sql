-- What did each provider's answers cost, how much of the bill is in doubt, and what does a correct one cost?
with answered as (
    select provider, count(*) as num_answers, sum(num_prompt_tokens) as num_prompt_tokens,
           sum(num_completion_tokens) as num_completion_tokens,
           count(*) filter (candidate_id in (select candidate_id from judged where status = 'correct'))
               as num_correct
    from completions where finish_reason <> 'exhausted' and not starts_with(finish_reason, 'error: ')
    group by provider
    union all
    select provider, count(*), sum(num_prompt_tokens), sum(num_completion_tokens), null
    from reviews where finish_reason <> 'repeated' and not starts_with(finish_reason, 'error: ')
    group by provider
), billed as (
    select provider, count(*) as num_tries, coalesce(sum(cost_usd), 0) as cost_usd,
           coalesce(sum(at_most_usd) filter (cost_usd is null), 0) as in_doubt_usd,
           count(*) filter (cost_usd is null) as num_in_doubt
    from tries group by provider
)
select provider, coalesce(num_answers, 0) as num_answers, num_prompt_tokens, num_completion_tokens,
       coalesce(num_tries, 0) as num_tries, coalesce(cost_usd, 0) as cost_usd,
       coalesce(num_in_doubt, 0) as num_in_doubt, coalesce(in_doubt_usd, 0) as in_doubt_usd,
       cost_usd / nullif(num_correct, 0) as usd_per_correct
from answered full join billed using (provider) order by cost_usd desc, provider
