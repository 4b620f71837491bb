"""Use kept versions in a program: find their records, and put them in place of a model's modules.

It runs in the user's own process, and imports no part of the harness.
"""
