-- Which distinct programs failed lately on a problem, in some stages or, before an attempt, in a training stage? The newest first, of one island or of all
with failed as (
    select a.candidate_id, coalesce(a.program_id, a.candidate_id) as program_id, a.source, v.content,
           max(case when c.stage = $running then c.attempt else -1 end) as newness
    from judged v join candidates a using (candidate_id) join completions c using (candidate_id)
    join members m on m.kind = 'completions' and m.key = c.completion_id
    where v.problem_id = $problem_id and v.device_kind = $device_kind and v.protocol_id = $protocol_id
      and list_contains($statuses, v.status)
      and (list_contains($stages, m.stage) or (m.stage = $running and c.attempt < $first_attempt))
      and ($island::integer is null or c.island = $island::integer)
    group by all
)
select candidate_id, source, content from failed
qualify row_number() over (partition by program_id order by newness desc, candidate_id) = 1
order by newness desc, candidate_id
limit $count::bigint
