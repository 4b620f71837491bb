-- How far do the timing samples of one measurement spread? Interquartile range over median, by role
select candidate_id, device_kind, protocol_id, session, role, count(*) as num_samples,
       median(net_us) as median_us,
       quantile_cont(net_us, 0.75) - quantile_cont(net_us, 0.25) as iqr_us,
       iqr_us / nullif(median_us, 0) as relative_iqr
from timing_samples group by all
order by relative_iqr desc nulls last, candidate_id, device_kind, protocol_id, session, role
