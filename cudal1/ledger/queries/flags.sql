-- Which candidates were flagged, by whom, and why? Vetoes of the reviewer and of people are flags, too
from flags order by kind, candidate_id, device_kind, protocol_id, source
