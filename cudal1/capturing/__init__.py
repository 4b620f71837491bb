"""Capture a module from a call of the user's own program, as a problem file.

`capture` records calls, `tensors` describes inputs as generators, `literals` writes constructor
arguments, `sources` cuts a class out of its module, `problem_file` writes the file, and `trying`
tries it.

All of it runs in the user's program and not in a process of the judge: `program` is the main
module of the process that `cudal1 capture` starts.
"""
