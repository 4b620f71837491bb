-- Which candidates were flagged, by whom, and why?
select * from hack_flags order by kind, candidate_id
