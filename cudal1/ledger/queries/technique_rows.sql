-- Which techniques does each timed success have on a kind of device, under a protocol? A row for each technique
select distinct candidate_id, technique from techniques
where device_kind = $device_kind and protocol_id = $protocol_id
order by candidate_id, technique
