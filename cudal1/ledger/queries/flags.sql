-- Which candidates were flagged, by whom, and why? Vetoes of the adversarial judge and of people are flags, too
select * from hack_flags
union all
select v.candidate_id, v.device_kind, v.protocol_id, veto.kind, veto.source, veto.evidence
from verdicts v join vetoes veto using (candidate_id) where v.status = 'correct'
order by kind, candidate_id, device_kind, protocol_id
