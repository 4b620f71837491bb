"""Search for faster versions of problems, in rounds; stage `search` and `cudal1 optimize` use it.

requests → answers → candidates → verdicts → notes for the prompts of the next round
"""
