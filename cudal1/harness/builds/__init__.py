"""Compilers and the finished builds of candidates: made ahead of judging, kept for later runs."""
