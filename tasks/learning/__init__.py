"""Parts of stages that train: the numbers of their steps, and the world of stage `rl`."""
