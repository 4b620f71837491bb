"""The extraction of a candidate's source from a model's text."""
