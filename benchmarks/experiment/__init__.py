"""The experiment: the pipeline's own stages with several rows of settings, at equal budget."""
