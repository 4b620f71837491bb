"""Judge kept versions again: are they still correct, and as fast as proven?

`check` finds out, on a device that `here` holds; `slowdown` has the test; `update` writes new
records.
"""
