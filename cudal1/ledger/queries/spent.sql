-- What has a provider cost so far, and what at most, with every try that is in doubt?
select coalesce(sum(cost_usd), 0) as cost_usd,
       coalesce(sum(coalesce(cost_usd, at_most_usd)), 0) as at_most_usd
from tries where provider = $provider
