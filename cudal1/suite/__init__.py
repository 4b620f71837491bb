"""The sources of problems (world 0): the shipped suite, generated problems, KernelBench."""
