-- What did each provider's answers cost, how much of the bill is in doubt, and what does a correct one cost?
from cost order by cost_usd desc, provider
