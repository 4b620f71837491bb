-- What did each step of a training stage log?
select step, name, value from training_steps where stage = $stage order by step, name
