-- What did every training step log?
select stage, step, name, value from training_steps order by stage, step, name
