"""Introduce worlds to each other, for the command line and the stages."""
