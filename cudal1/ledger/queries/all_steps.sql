-- What did every training step of these stages log?
select stage, step, name, value from training_steps where list_contains($stages, stage)
order by stage, step, name
