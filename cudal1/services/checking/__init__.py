"""Judge kept versions again: are they still correct, and as fast as proven?

`check` finds out, on a device that `here` holds; `sessions` measures; `slowdown` has the test;
`update` writes new records.
"""
